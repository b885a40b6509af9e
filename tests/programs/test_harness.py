"""scripts/harness.py on a task of its own folder."""

import json
import sys

import pytest
import yaml
from running import CLOSED, script


@pytest.fixture
def tasks(tmp_path):
    """A folder with a task that scores two continuations of a context of 40 bytes."""
    data = tmp_path / "documents.jsonl"
    data.write_text(json.dumps({"text": "ab " * 13 + "a", "choices": ["b", "h"]}) + "\n")
    task = {
        "task": "mine",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": str(tmp_path)},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{text}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "0",
        "metadata": {"version": 1},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(task))
    return tmp_path


def test_a_task_is_scored_and_cut_contexts_are_told(whole, tasks):
    run, out = whole[0], tasks / "results.json"
    words = ["harness.py", run, "--tasks=mine", f"--include={tasks}"]
    printed = script(*words, f"--out={out}")
    assert "|Tasks|" in printed and "|mine " in printed
    assert "2 contexts of more than 32 tokens cut on the left\n" in printed
    results = json.loads(out.read_text())
    assert results["results"]["mine"]["acc,none"] in (0, 1)
    facts = {"run": run.name, "extension": "none", "max_length": 32, "contexts_cut": 2}
    assert facts.items() <= results["config"].items()
    printed = script(*words, "--extension=yarn:2")
    assert "\n0 contexts of more than 64 tokens cut on the left\n" in printed


def test_a_task_whose_data_the_hub_does_not_give_ends_in_one_line(whole, tasks, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", CLOSED)
    task = yaml.safe_load((tasks / "mine.yaml").read_text())
    task |= {"dataset_path": "maker/none", "dataset_kwargs": {}}
    (tasks / "mine.yaml").write_text(yaml.safe_dump(task))
    out = script("harness.py", whole[0], "--tasks=mine", f"--include={tasks}", code=65)
    assert f"error: cannot load the data of mine: {CLOSED} is out of reach" in out


def test_an_unknown_task_and_a_missing_package_are_explained(whole, tasks, monkeypatch):
    words = ["harness.py", whole[0], f"--include={tasks}"]
    assert f"{tasks} has no task yours" in script(*words, "--tasks=mine,yours", code=2)
    for wrong in ("--metadata=[1]", "--max_length=1"):
        assert f"{wrong.partition('=')[0]} must be" in script(*words, "--tasks=mine", wrong, code=2)
    monkeypatch.delitem(sys.modules, "posenc_jax.evaluation.harness")
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.delattr("posenc_jax.evaluation.harness")
    advice = ".venv/bin/pip install -e '.[lm_eval]'"
    assert advice in script(*words, "--tasks=mine", code=2)
