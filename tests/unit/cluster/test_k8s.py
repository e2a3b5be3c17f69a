"""Manifests for Kubernetes: held against the published schemas; names, quantities and paths are refused before."""

import json
import os
import shlex
import stat
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from weft import cli
from weft.cluster import Request
from weft.cluster.k8s import K8s
from weft.errors import ClusterError

SCHEMAS = json.loads((Path(__file__).parents[2] / "data" / "kubernetes" / "schemas.json").read_text())
IMAGE = "registry.example.com:5000/team/weft:0.1.0"
TRAIN = ("train", "/graph/parts", "--checkpoint", "/checkpoints/parts", "--out", "/checkpoints/model")
CLAIMS = {"graph": "graphs", "checkpoints": "runs"}


def shown(capsys, *arguments, words=TRAIN, hosts=4, workers=2, **options):
    given = [f"--option={name}={value}" for name, value in {"image": IMAGE, **options}.items()]
    size = ["--hosts", str(hosts), "--workers-per-host", str(workers)]
    assert cli.main(["launch", "k8s", *size, *given, "--dry-run", *arguments, "--", *words]) == 0
    return json.loads(capsys.readouterr().out)


def refusal(capsys, words=TRAIN, **options):
    given = [f"--option={name}={value}" for name, value in options.items()]
    assert cli.main(["launch", "k8s", *given, "--dry-run", "--", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("weft: ") and error.count("\n") == 1
    return error


def held_against_schemas(manifest):
    """The objects of a manifest by kind, once each is what its published schema says."""
    found = {}
    for one in manifest["items"] if manifest["kind"] == "List" else [manifest]:
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": SCHEMAS["$defs"]}
        jsonschema.validate(one, schema | SCHEMAS["kinds"][one["kind"]])
        found[one["kind"]] = one
    return found


def pods(objects):
    """The pods' specifications of each kind of host."""
    if "PyTorchJob" in objects:
        replicas = objects["PyTorchJob"]["spec"]["pytorchReplicaSpecs"]
        return [replica["template"]["spec"] for replica in replicas.values()]
    (node,) = objects["TrainingRuntime"]["spec"]["template"]["spec"]["replicatedJobs"]
    return [node["template"]["spec"]["template"]["spec"]]


JOBS = pytest.mark.parametrize("job", ["trainjob", "pytorchjob"])


@JOBS
def test_pods_are_as_asked_for(capsys, job):
    objects = held_against_schemas(
        shown(capsys, job=job, name="cora", namespace="team", cpus="8", memory="64Gi", gpus="2", grace="300", **CLAIMS)
    )
    assert all(one["metadata"] == {"name": "cora", "namespace": "team"} for one in objects.values())
    for pod in pods(objects):
        (container,) = pod["containers"]
        assert container["name"] == {"trainjob": "node", "pytorchjob": "pytorch"}[job]  # as the operators want it
        assert container["image"] == IMAGE
        assert container["command"][2:] == [
            *("torch.distributed.run", "--nnodes", "4", "--nproc-per-node", "2", "-m", "weft.cli"),
        ]
        assert container["args"] == [*TRAIN, "--resume"]
        asked = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "2"}
        assert container["resources"] == {"requests": asked, "limits": asked}
        assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in pod["volumes"]
        assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]
        environment = {one["name"]: one["value"] for one in container["env"]}
        assert environment["OMP_NUM_THREADS"] == "4"
        assert pod["terminationGracePeriodSeconds"] == 300
        assert environment["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == "290"


@JOBS
def test_pods_have_no_rights(capsys, job):
    """What Kubernetes' "restricted" standard asks for, and no token."""
    for pod in pods(held_against_schemas(shown(capsys, job=job, **CLAIMS))):
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = pod["containers"]
        rights = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        assert container["securityContext"] == rights
        assert not any("hostPath" in volume for volume in pod["volumes"])


@pytest.mark.parametrize(("checkpoints", "volumes"), [("runs", 2), ("graphs", 1)])
def test_graph_and_checkpoints_are_on_claims(capsys, checkpoints, volumes):
    (pod,) = pods(held_against_schemas(shown(capsys, graph="graphs", checkpoints=checkpoints)))
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["volumes"]
        if "persistentVolumeClaim" in volume
    }
    mounts = {
        mount["mountPath"]: (claims[mount["name"]], mount["readOnly"])
        for mount in pod["containers"][0]["volumeMounts"]
        if mount["name"] in claims
    }
    assert mounts == {"/graph": ("graphs", True), "/checkpoints": (checkpoints, False)}
    assert len(claims) == volumes  # a claim is one volume, wherever it is mounted


def test_a_train_job_starts_all_pods_again(capsys):
    objects = held_against_schemas(shown(capsys, restarts="5", **CLAIMS))
    runtime, job = objects["TrainingRuntime"], objects["TrainJob"]
    assert job["spec"]["trainer"] == {"numNodes": 4, "numProcPerNode": 2}
    assert job["spec"]["runtimeRef"]["kind"] == "TrainingRuntime"
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    jobs = runtime["spec"]["template"]["spec"]
    assert jobs["failurePolicy"] == {"maxRestarts": 5}
    assert jobs["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] == 0
    assert pods(objects)[0]["restartPolicy"] == "Never"


def test_containers_of_a_pytorch_job_are_started_again(capsys):
    spec = held_against_schemas(shown(capsys, job="pytorchjob", restarts="5", **CLAIMS))["PyTorchJob"]["spec"]
    assert spec["nprocPerNode"] == "2"
    assert spec["runPolicy"] == {"cleanPodPolicy": "Running", "backoffLimit": 21}  # four containers each time
    replicas = spec["pytorchReplicaSpecs"]
    assert {name: (one["replicas"], one["restartPolicy"]) for name, one in replicas.items()} == {
        "Master": (1, "OnFailure"),
        "Worker": (3, "OnFailure"),
    }


def test_without_checkpoints_nothing_is_started_again(capsys):
    words = ("train", "/graph/parts")
    objects = held_against_schemas(shown(capsys, words=words, hosts=1, graph="graphs"))
    assert objects["TrainingRuntime"]["spec"]["template"]["spec"]["failurePolicy"] == {"maxRestarts": 0}
    assert pods(objects)[0]["containers"][0]["args"] == list(words)
    objects = held_against_schemas(shown(capsys, words=words, hosts=1, graph="graphs", job="pytorchjob"))
    (master,) = objects["PyTorchJob"]["spec"]["pytorchReplicaSpecs"].values()
    assert master["restartPolicy"] == "Never"
    assert "restarts go on from checkpoints" in refusal(capsys, words, image=IMAGE, graph="graphs", restarts="2")


def test_variables_are_not_put_into_the_users_words(capsys):
    (pod,) = pods(held_against_schemas(shown(capsys, words=("train", "/data/$(HOME) $USER; true"))))
    (container,) = pod["containers"]
    assert container["args"] == ["train", "/data/$$(HOME) $$USER; true"]  # Kubernetes makes $ of $$; there is no shell
    assert "sh" not in container["command"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("name", value) for value in ("Weft", "1st", "a_b", "-a", "a-", "a" * 41, "a\nb", "")),
        *(("namespace", value) for value in ("Team", "a.b", "a" * 64, "")),
        *(("graph", value) for value in ("Claim", "a/b", "..", "a" * 254, "")),
        *(("image", value) for value in ("Weft", "weft 1", "weft:", "weft@sha256:1", "$(id)", "")),
        *(("memory", value) for value in ("64GiB", "64 Gi", "-1Gi", "0", "64", "lots", "")),
        *((name, value) for name in ("cpus", "gpus") for value in ("0", "1.5", "eight", "-1", "")),
        *(("job", value) for value in ("rayjob", "")),
        *(("restarts", value) for value in ("-1", "many")),
        *(("grace", value) for value in ("0", "1h")),
    ],
)
def test_what_kubernetes_would_refuse_is_refused(capsys, option, value):
    error = refusal(capsys, **{"image": IMAGE, **CLAIMS, option: value})
    assert f"{option} = {value!r} is not possible for Kubernetes: give " in error


def test_what_would_be_lost_with_a_pod_is_refused(capsys, tmp_path):
    assert "/checkpoints/parts would be lost with its pod: give --option checkpoints=CLAIM" in refusal(
        capsys, image=IMAGE, graph="graphs"
    )
    elsewhere = ("train", "/graph/parts", "--out=model")
    assert "model would be lost with its pod" in refusal(capsys, elsewhere, image=IMAGE, **CLAIMS)
    (tmp_path / "run.toml").write_text('[checkpoint]\nfolder = "/checkpoints/parts"\n')
    out = ("--out", "/checkpoints/m")
    for there in (["--set=checkpoint.folder=/tmp/k"], ["--set", "checkpoint.folder=/tmp/k"]):
        assert "/tmp/k would be lost" in refusal(capsys, ("train", "/graph/p", *there, *out), image=IMAGE, **CLAIMS)
    up = ("train", "/graph/p", "--checkpoint", "/checkpoints/../tmp/k")
    assert "/checkpoints/../tmp/k would be lost" in refusal(capsys, up, image=IMAGE, **CLAIMS)
    by_file = ("train", "/graph/parts", "--config", str(tmp_path / "run.toml"))
    assert "/checkpoints/parts would be lost with its pod" in refusal(capsys, by_file, image=IMAGE, graph="graphs")


@pytest.mark.parametrize("command", ["train", "doctor"])
def test_what_a_settings_file_would_lose_is_refused(capsys, tmp_path, command):
    file = tmp_path / "run.toml"
    words = (command, "/graph/p", "--config", str(file))
    for text in ('[checkpoint]\nfolder = "/tmp/run"\n', 'checkpoint = "/tmp/run"\n'):
        file.write_text(text)
        assert "/tmp/run would be lost with its pod" in refusal(
            capsys, (*words, "--out", "/checkpoints/m"), image=IMAGE, **CLAIMS
        )
        shown(capsys, words=(*words, "--checkpoint=/checkpoints/run"), **CLAIMS)  # a flag wins
        shown(capsys, words=(*words, "--set=checkpoint.folder=none"), graph="graphs")
    file.write_text('checkpoint = "/checkpoints/run"\n')
    shown(capsys, words=words, **CLAIMS)  # the claim is of use
    there = ("--set", "checkpoint.folder=/tmp/k")
    assert "/tmp/k would be lost with its pod" in refusal(capsys, (*words, *there), image=IMAGE, **CLAIMS)


def test_a_log_that_would_be_lost_with_its_pod_is_refused(capsys):
    words = ("train", "/graph/p", "--out=/checkpoints/m", "--tensorboard")
    assert "/tmp/tb would be lost with its pod" in refusal(capsys, (*words, "/tmp/tb"), image=IMAGE, **CLAIMS)
    shown(capsys, words=(*words, "/checkpoints/tb"), **CLAIMS)


def test_what_other_commands_write_is_refused_where_it_would_be_lost(capsys):
    for words in (("probe", "--out", "/tmp/c.toml"), ("probe", "--out=/tmp/c.toml")):
        assert "/tmp/c.toml would be lost with its pod" in refusal(capsys, words, image=IMAGE, checkpoints="runs")


def test_options_without_effect_are_refused(capsys):
    assert "the volume claim checkpoints is at /checkpoints, and nothing" in refusal(
        capsys, ("train", "/graph/parts"), image=IMAGE, **CLAIMS
    )
    assert "the volume claim graph is at /graph, and nothing" in refusal(
        capsys, ("train", "parts"), image=IMAGE, graph="graphs"
    )
    assert "pods need an image" in refusal(capsys, ("train", "/graph/parts"), graph="graphs")
    assert "has no option 'tpus'" in refusal(capsys, image=IMAGE, tpus="1")
    assert "grace = 5 is too short" in refusal(capsys, image=IMAGE, grace="5", **CLAIMS)


def test_workers_have_a_gpu_each_or_none(capsys):
    cuda, cpu = (("train", "/graph/parts", "--device", device) for device in ("cuda", "cpu"))
    assert "--device cuda needs pods with GPUs: give --option gpus=1, one for" in refusal(capsys, cuda, image=IMAGE)
    assert "gpus = 1 does not go with --device cpu: drop one" in refusal(capsys, cpu, image=IMAGE, gpus="1")
    words = ["--workers-per-host", "4", "--option", f"image={IMAGE}", "--option", "gpus=2", "--dry-run", "--", "probe"]
    assert cli.main(["launch", "k8s", *words]) == 2
    assert "gpus = 2 is too few for the 4 workers of a host" in capsys.readouterr().err


def test_the_command_of_the_docs_works(capsys):
    text = (Path(__file__).parents[3] / "docs" / "clusters.md").read_text().replace("\\\n", " ")
    (line,) = (line for line in text.splitlines() if line.startswith("    weft launch k8s"))
    assert cli.main(shlex.split(line)[1:]) == 0
    assert {*held_against_schemas(json.loads(capsys.readouterr().out))} == {"TrainingRuntime", "TrainJob"}


def test_the_manifest_is_what_kubectl_gets(capfd, monkeypatch, tmp_path):
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(
        '#!/bin/sh\nif [ $1 = get ]; then echo "$@" > "$0.asked"; cat "$0.there"; else echo "$@"; cat; fi\n'
    )
    kubectl.chmod(kubectl.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    request = Request(TRAIN, 2, 4, options={"image": IMAGE, **CLAIMS}, resumable=True)
    there = tmp_path / "kubectl.there"
    there.write_text("")
    assert K8s().submit(request) == 0
    assert capfd.readouterr().out == "create -f -\n" + K8s().shown(request)
    there.write_text("trainingruntime.trainer.kubeflow.org/weft\ntrainjob.trainer.kubeflow.org/weft\n")
    told = (
        r"has trainingruntime\S*/weft and trainjob\S*/weft already: give another --option name=..., or remove them, if that "
        r"run has ended \(`kubectl delete trainingruntime\S*/weft trainjob\S*/weft --namespace ours`\)"
    )
    with pytest.raises(ClusterError, match=told):
        K8s().submit(replace(request, options={**request.options, "namespace": "ours"}))
    asked = "get trainingruntime/weft trainjob/weft --namespace ours --ignore-not-found --output name\n"
    assert (tmp_path / "kubectl.asked").read_text() == asked and capfd.readouterr().out == ""
    there.unlink()
    assert K8s().submit(request) == 1  # the cluster does not answer


def test_without_kubectl_the_user_is_told(capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert cli.main(["launch", "k8s", "--option", f"image={IMAGE}", "--", "train", "/data/parts"]) == 2
    assert "there is no kubectl on this machine" in capsys.readouterr().err


def test_other_commands_run_in_pods_too(capsys):
    (pod,) = pods(
        held_against_schemas(shown(capsys, words=("probe", "--out", "/checkpoints/cluster.toml"), checkpoints="runs"))
    )
    assert pod["containers"][0]["args"] == ["probe", "--out", "/checkpoints/cluster.toml"]
