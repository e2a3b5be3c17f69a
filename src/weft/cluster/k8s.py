"""Kubernetes: a manifest for Kubeflow's operators, whose pods run torchrun; a restarted pod goes on from its checkpoint.

It is printed as JSON, which is YAML too, so that nothing depends on how a word is quoted.
"""

import json
import posixpath
import re
import subprocess
from itertools import chain
from typing import Any

from weft.cluster.launcher import Launcher, Request, shells_code
from weft.cluster.torchrun import after_torchrun
from weft.errors import ClusterError, ConfigError

_USER = 10001  # of the image that the Dockerfile builds
_SPARE = 10  # seconds of the grace in which torchrun ends once its workers have
_FOLDERS = {"graph": "/graph", "checkpoints": "/checkpoints"}  # where the volume claims are mounted
_OPERATORS = {"trainjob": ("trainer.kubeflow.org/v1alpha1", "node"), "pytorchjob": ("kubeflow.org/v1", "pytorch")}

_CLAIM = (r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", "a name such as weft-data")
_WHOLE = r"[1-9]\d{0,5}"
# Each option: what it may be, and in words. Names are RFC 1123's; a job's begins with a letter, and its pods' are longer.
_FORMS = {
    "image": (
        r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?(:\d+)?(/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)*(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?",
        "an image such as registry.example.com/weft:0.1.0",
    ),
    "job": ("|".join(_OPERATORS), "trainjob (Kubeflow Trainer 2) or pytorchjob (its training operator 1)"),
    "name": (r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", "lower-case letters, digits and dashes, at most 40, a letter first"),
    "namespace": (r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "lower-case letters, digits and dashes, at most 63"),
    "cpus": (_WHOLE, "a whole number of a host's processors, such as 8"),
    "memory": (r"[1-9]\d*(\.\d+)?([KMGTPE]i|[kMGTPE])", "a quantity of a host's memory, such as 64Gi"),
    "gpus": (_WHOLE, "a whole number of a host's GPUs, such as 8"),
    "graph": _CLAIM,
    "checkpoints": _CLAIM,
    "restarts": (r"\d{1,4}", "a whole number"),
    "grace": (_WHOLE, "a whole number of seconds"),
}


class K8s(Launcher):
    """A namespace of a Kubernetes cluster in which one of Kubeflow's operators starts pods."""

    name = "k8s"
    help = (
        "a manifest for Kubeflow's operators; options: image, job=trainjob|pytorchjob, name, namespace, cpus, memory and "
        "gpus of a host, graph and checkpoints (volume claims), restarts, grace"
    )
    options = tuple(_FORMS)

    def check(self, request: Request) -> None:
        """Refuse names and quantities that Kubernetes would refuse, and what would be lost with a pod."""
        super().check(request)
        for option, value in request.options.items():
            form, words = _FORMS[option]
            if not re.fullmatch(form, value, re.ASCII):
                raise ConfigError(f"{option} = {value!r} is not possible for Kubernetes: give {words}")
        if "image" not in request.options:
            raise ConfigError(f"pods need an image that holds Weft: give --option image=..., {_FORMS['image'][1]}")
        if not request.resumable and "restarts" in request.options:
            raise ConfigError(
                "restarts go on from checkpoints: give train --checkpoint /checkpoints/NAME, or drop restarts"
            )
        if int(request.option("grace", "120")) <= _SPARE:
            raise ConfigError(
                f"grace = {request.options['grace']} is too short: torchrun alone takes {_SPARE} s to end"
            )
        _check_folders(request)
        _check_gpus(request)

    def shown(self, request: Request) -> str:
        """The manifest."""
        return json.dumps(_manifest(request), indent=2)

    def submit(self, request: Request) -> int:
        """Hand the manifest to kubectl, unless what it names is there: in place of that it might start nothing."""
        objects = _manifest(request).get("items", [_manifest(request)])
        names = [f"{one['kind'].lower()}/{one['metadata']['name']}" for one in objects]
        where = ["--namespace", request.options["namespace"]] if "namespace" in request.options else []
        look = ["kubectl", "get", *names, *where, "--ignore-not-found", "--output", "name"]
        try:
            found = subprocess.run(look, stdout=subprocess.PIPE, text=True)
            there = found.stdout.split()
            if there:
                delete = " ".join(["kubectl delete", *there, *where])
                raise ClusterError(
                    f"Kubernetes has {' and '.join(there)} already: give another --option name=..., or remove them, if "
                    f"that run has ended (`{delete}`)"
                )
            create = ["kubectl", "create", "-f", "-"]
            code = found.returncode or subprocess.run(create, input=self.shown(request), text=True).returncode
            return shells_code(code)
        except FileNotFoundError:
            raise ClusterError(
                "there is no kubectl on this machine: install it, or print the manifest with --dry-run"
            ) from None


def _manifest(request: Request) -> dict[str, Any]:
    make = _train_job if request.option("job", "trainjob") == "trainjob" else _pytorch_job
    return make(request)


def _check_folders(request: Request) -> None:
    """What is written must be on the claim that outlives pods; a claim must be of use."""
    written, kept = [str(path) for path in request.written], _FOLDERS["checkpoints"] + "/"
    lost = [path for path in written if not f"{posixpath.normpath(path)}/".startswith(kept)]
    if "checkpoints" not in request.options:
        lost = written
    if lost:
        raise ConfigError(
            f"{lost[0]} would be lost with its pod: give --option checkpoints=CLAIM, and write to {kept}NAME, where that "
            f"volume claim is"
        )
    said = (word.removeprefix("--set=").split("=", 1) for word in request.arguments)
    words = [*chain.from_iterable(said), *written]  # of a settings file, too
    for claim, folder in _FOLDERS.items():
        if claim in request.options and not any(word.startswith(folder + "/") or word == folder for word in words):
            raise ConfigError(
                f"the volume claim {claim} is at {folder}, and nothing of the command is there: drop it, or use it"
            )


def _check_gpus(request: Request) -> None:
    """A pod has none but those that it asks for, and each of its workers computes on one."""
    gpus = int(request.option("gpus", "0"))
    if gpus and request.device == "cpu":
        raise ConfigError(f"gpus = {gpus} does not go with --device cpu: drop one of them")
    if not gpus and request.device == "cuda":
        raise ConfigError(
            f"--device cuda needs pods with GPUs: give --option gpus={request.workers}, one for each worker of a host"
        )
    if 0 < gpus < request.workers:
        raise ConfigError(
            f"gpus = {gpus} is too few for the {request.workers} workers of a host, each of which computes on one: give "
            f"{request.workers}, or lower --workers-per-host"
        )


def _pytorch_job(request: Request) -> dict[str, Any]:
    """Of the training operator: a master and the other hosts. A container that fails is started again within its pod."""
    restarts = _restarts(request)
    replica = {
        "replicas": 1,
        "restartPolicy": "OnFailure" if restarts else "Never",
        "template": {"spec": _pod(request)},
    }
    replicas = {"Master": replica, "Worker": {**replica, "replicas": request.hosts - 1}}
    if request.hosts == 1:
        del replicas["Worker"]
    policy: dict[str, Any] = {"cleanPodPolicy": "Running"}
    if restarts:  # all hosts' are counted, and it gives up once they are so many
        policy["backoffLimit"] = restarts * request.hosts + 1
    return _object(
        request,
        "PyTorchJob",
        {"nprocPerNode": str(request.workers), "runPolicy": policy, "pytorchReplicaSpecs": replicas},
    )


def _train_job(request: Request) -> dict[str, Any]:
    """Of the Trainer: a job, and a runtime that says what a job can't. When a pod fails, all are started anew."""
    pod = {**_pod(request), "restartPolicy": "Never"}
    node = {
        "name": "node",
        "replicas": 1,
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"backoffLimit": 0, "template": {"spec": pod}},
        },
    }
    runtime = {
        "mlPolicy": {"numNodes": request.hosts, "torch": {}},
        "template": {"spec": {"failurePolicy": {"maxRestarts": _restarts(request)}, "replicatedJobs": [node]}},
    }
    job = {
        "runtimeRef": {
            "apiGroup": "trainer.kubeflow.org",
            "kind": "TrainingRuntime",
            "name": request.option("name", "weft"),
        },
        "trainer": {"numNodes": request.hosts, "numProcPerNode": request.workers},
    }
    items = [_object(request, "TrainingRuntime", runtime), _object(request, "TrainJob", job)]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _object(request: Request, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    version, _ = _OPERATORS[request.option("job", "trainjob")]
    metadata = {"name": request.option("name", "weft")}
    if "namespace" in request.options:
        metadata["namespace"] = request.options["namespace"]
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _pod(request: Request) -> dict[str, Any]:
    """A host: no root, no token of the cluster, nothing writable but its volumes, and time to write a checkpoint."""
    grace = int(request.option("grace", "120"))
    claims = {claim: request.options[claim] for claim in _FOLDERS if claim in request.options}
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
    if "gpus" in request.options:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
    volumes += [
        {"name": f"claim-{number}", "persistentVolumeClaim": {"claimName": name}}
        for number, name in enumerate(dict.fromkeys(claims.values()))
    ]
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(request, grace, claims)],
        "volumes": volumes,
    }


def _container(request: Request, grace: int, claims: dict[str, str]) -> dict[str, Any]:
    # Pods learn their number, and where the first one is, from the operator: in torchrun's own variables (PET_...).
    start = ["python", "-m", "torch.distributed.run", "--nnodes", str(request.hosts)]
    start += ["--nproc-per-node", str(request.workers), "-m", "weft.cli"]
    words = after_torchrun(request.resumed())
    environment = {"HOME": "/tmp", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(grace - _SPARE)}
    if "cpus" in request.options:
        environment["OMP_NUM_THREADS"] = str(max(1, int(request.options["cpus"]) // request.workers))
    named = {"cpu": "cpus", "memory": "memory", "nvidia.com/gpu": "gpus"}
    resources = {name: request.options[option] for name, option in named.items() if option in request.options}
    places = list(dict.fromkeys(claims.values()))
    mounts: list[dict[str, Any]] = [{"name": "tmp", "mountPath": "/tmp"}]
    if "gpus" in request.options:  # through which NCCL exchanges, for which the usual 64 MB are too few
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    for claim, name in claims.items():
        mounts.append(
            {"name": f"claim-{places.index(name)}", "mountPath": _FOLDERS[claim], "readOnly": claim == "graph"}
        )
    _, container = _OPERATORS[request.option("job", "trainjob")]
    return {
        "name": container,
        "image": request.options["image"],
        "command": start,
        "args": [word.replace("$", "$$") for word in words],  # Kubernetes would put variables in place of $(NAME)
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "resources": {"requests": resources, "limits": resources},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }


def _restarts(request: Request) -> int:
    """How often all pods may be started again; never, where that would begin anew."""
    return int(request.option("restarts", "3")) if request.resumable else 0
