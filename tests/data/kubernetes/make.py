"""Writes schemas.json beside this file: what PyTorchJob, TrainingRuntime and TrainJob may hold.

It is made from the OpenAPI models that the Kubeflow project publishes (Apache-2.0):

    pip install kubeflow-trainer-api==2.3.0 kubeflow-training==1.9.4
    python tests/data/kubernetes/make.py

Trimmed: no descriptions, and none of the properties in LEFT_OUT. An object may hold no other property than those listed,
as `kubectl apply --validate=strict` has it.
"""

import inspect
import json
import re
from pathlib import Path

import kubeflow.training.models as v1
import kubeflow_trainer_api.models as v2

WORDS = {"str": "string", "int": "integer", "bool": "boolean"}
QUANTITY = (
    "IoK8sApimachineryPkgApiResourceQuantity"  # text or number, which the models wrap; its form is that of the CRDs
)
NUMBER = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
FORM = rf"^(\+|-)?{NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{NUMBER}))?$"
LEFT_OUT = {
    *("status", "managedFields", "ownerReferences", "initializer", "runtimePatches", "elasticPolicy", "podGroupPolicy"),
    "schedulingPolicy",
    *("affinity", "ephemeralContainers", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe", "ephemeral"),
    *("topologySpreadConstraints", "resourceClaims", "schedulingGates", "dnsConfig", "hostAliases", "tolerations"),
    *("awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "downwardAPI", "fc", "flexVolume"),
    *("flocker", "gcePersistentDisk", "gitRepo", "glusterfs", "iscsi", "photonPersistentDisk", "portworxVolume", "rbd"),
    *("projected", "quobyte", "scaleIO", "storageos", "vsphereVolume", "nfs", "windowsOptions"),
    *("mpi", "flux", "volumeClaimPolicies", "podFailurePolicy", "successPolicy", "startupPolicy", "coordinator"),
}


def trimmed(schema):
    """A schema of pydantic's as a structural one: closed objects, and nothing for people."""
    if isinstance(schema, list):
        return [trimmed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if {"type": "null"} in schema.get("anyOf", ()):  # it may be left out, but not be null
        return trimmed(next(part for part in schema["anyOf"] if part != {"type": "null"}))
    for_people = ("title", "description", "default")
    kept = {key: trimmed(part) for key, part in schema.items() if key not in (*for_people, "properties")}
    if "properties" in schema:
        kept["properties"] = {key: trimmed(part) for key, part in schema["properties"].items() if key not in LEFT_OUT}
        kept["additionalProperties"] = False
    return kept


def swagger(name, definitions):
    """The schema of a model of the older package; pods are those of the newer one."""
    if name in WORDS:
        return {"type": WORDS[name]}
    if found := re.fullmatch(r"list\[(.+)\]", name):
        return {"type": "array", "items": swagger(found[1], definitions)}
    if found := re.fullmatch(r"dict\(str, (.+)\)", name):
        return {"type": "object", "additionalProperties": swagger(found[1], definitions)}
    if name.startswith("V1"):
        name = ("IoK8sApimachineryPkgApisMeta" if name == "V1ObjectMeta" else "IoK8sApiCore") + name
    elif name not in definitions:
        model = getattr(v1, name)
        definitions[name] = {"type": "object", "additionalProperties": False, "properties": {}, "required": []}
        for field, kind in model.openapi_types.items():
            key = model.attribute_map[field]
            if key in LEFT_OUT:
                continue
            definitions[name]["properties"][key] = swagger(kind, definitions)
            if "is None" in inspect.getsource(getattr(model, field).fset):
                definitions[name]["required"].append(key)
    return {"$ref": f"#/$defs/{name}"}


def reached(schema, definitions, found):
    """The definitions that a schema needs."""
    for name in re.findall(r'"#/\$defs/(\w+)"', json.dumps(schema)):
        if name not in found:
            found[name] = definitions[name]
            reached(definitions[name], definitions, found)
    return found


definitions, kinds = {}, {}
for kind in ("TrainingRuntime", "TrainJob"):
    schema = trimmed(getattr(v2, f"TrainerV1alpha1{kind}").model_json_schema(by_alias=True))
    definitions |= schema.pop("$defs")
    kinds[kind] = schema
definitions[QUANTITY] = {"type": ["string", "number"], "pattern": FORM}
kinds["PyTorchJob"] = swagger("KubeflowOrgV1PyTorchJob", definitions)
packages = "kubeflow-trainer-api 2.3.0 and kubeflow-training 1.9.4"
source = f"trimmed from the OpenAPI models of {packages} (The Kubeflow Authors, Apache-2.0)"
schemas = {"$comment": source, "kinds": kinds, "$defs": dict(sorted(reached(kinds, definitions, {}).items()))}
Path(__file__).with_name("schemas.json").write_text(json.dumps(schemas, indent=1) + "\n")
