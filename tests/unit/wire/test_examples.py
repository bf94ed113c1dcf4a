"""The examples are valid, ask for nothing that this version lacks, and mean the files beside them."""

from pathlib import Path

import pytest

from moorage.client.documents import with_prompts
from moorage.wire.spec import normalise, parse_documents
from moorage.wire.supported import unsupported

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
FILES = sorted(EXAMPLES.glob("*.yaml"))


def test_the_examples_that_the_documents_name_are_there():
    assert {"smollm2.yaml", "fake-server.yaml", "two-replicas.yaml", "sleeping.yaml"} <= {f.name for f in FILES}
    assert {"scaling.yaml", "spanning.yaml", "endpoint.yaml"} <= {f.name for f in FILES}
    assert {"gang.yaml", "torchrun.yaml", "array.yaml", "checkpoint.yaml", "given.yaml", "guarded.yaml"} <= {
        f.name for f in FILES
    }


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_each_example_is_valid_and_available(file):
    for doc in parse_documents(file.read_text(), source=file.name, base=str(EXAMPLES)):
        plain = normalise(with_prompts(doc))
        assert unsupported(plain) == []


def runtimes_of(doc):
    if doc.kind == "Endpoint":
        return []
    return [doc.runtime] if doc.kind == "Deployment" else [g.runtime for g in doc.groups]


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_each_example_starts_a_program_that_is_there(file):
    for doc in parse_documents(file.read_text(), source=file.name, base=str(EXAMPLES)):
        for runtime in runtimes_of(doc):
            if runtime.runner != "process":
                continue  # it is in the image
            script = runtime.command[1]
            assert script.startswith("-") or (Path(runtime.workdir) / script).is_file()
