"""Prepared tokens: a folder that trains and is evaluated without the text and its packages."""

import json
import re
import shutil
from importlib import import_module

import numpy as np
import pytest
from configured import origin_of, problems_of, source_of
from curves import rows_of
from running import ROOT, TINY, here, python, script

import posenc_jax
from configs import base
from posenc_jax.config import load, schema
from posenc_jax.config.resolve import FORMAT, resolve
from posenc_jax.data import corpora, export, tokenizer
from posenc_jax.data.prepare import prepare
from posenc_jax.evaluation import check
from posenc_jax.runtime.errors import ConfigError, DataError

WORDS = "the café naïve 東京 of and to in a is that for it as was with be by on not he".split()


def words(seed, count=160):
    return " ".join(np.random.default_rng(seed).choice(WORDS, count)) + "\n"


def text_of(folder, encoder=""):
    fields = {"source": "text", "path": f"{folder}/text/*.txt", "valid_fraction": 0.3}
    fields |= {"cache": f"{folder}/cache"} | ({"tokenizer": folder / encoder} if encoder else {})
    return ["--config=configs/rope.py", *(f"--config.data.{n}={v}" for n, v in fields.items())]


def recipe(**fields):
    fields = {n: v for n, v in TINY.items() if not n.startswith("data.")} | fields
    return ["--config=configs/rope.py", *(f"--config.{n}={v}" for n, v in fields.items())]


SMALL = ["--config.multiples=1,2", "--config.extensions=none,yarn", "--config.documents=4"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A text of many alphabets, a tokenizer, the folder of its tokens, and where they were kept."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "text").mkdir()
    for i in range(24):
        (folder / "text" / f"{i:02d}.txt").write_text(words(i))
    out = script("prepare_data.py", *text_of(folder), "--vocab=300", f"--out={folder}/bpe.json")
    assert "a BPE of 300 tokens" in out
    shown = out.partition("\ntrain: ")[2].partition("'bytes_per_token': ")[2].partition(",")[0]
    assert float(shown) > 1.2
    assert re.search(r"^\d+\.\d% of the training tokens are in documents longer", out, re.M)
    tokens = [f"--tokens-out={folder}/tokens", "--limit=2e3"]
    out = script("prepare_data.py", *text_of(folder, "bpe.json"), *tokens)
    assert f"MiB, for --config.data.tokens={folder}/tokens" in out
    return folder


def data_of(folder, **fields):
    data = base.get_config().data
    usual = {"path": f"{folder}/text/*.txt", "tokenizer": f"{folder}/bpe.json"}
    usual |= {"source": "text", "valid_fraction": 0.3, "cache": f"{folder}/cache"}
    data.update(**usual | fields)
    return origin_of(data)


def named(folder):
    return source_of(tokens=str(folder))


def documents_of(split):
    parts = map(slice, split.starts, split.starts[1:])
    arrays = [split.tokens, *([] if split.bytes_of is None else [split.bytes_of])]
    return {
        int(digest): [array[part].tolist() for array in arrays]
        for digest, part in zip(split.digests, parts, strict=True)
    }


def test_documents_are_kept_as_they_were_up_to_the_limit(texts, tmp_path):
    """Whatever the order of the files."""
    whole = prepare(data_of(texts), 0, quiet=True)
    made = corpora.of_folder(f"{texts}/tokens")
    for name in ("train", "valid"):
        before, kept = (documents_of(getattr(one, name)) for one in (whole, made))
        assert 0 < len(kept) < len(before)
        assert all(before[digest] == document for digest, document in kept.items())
    longest = whole.train.lengths.max()
    assert 2_000 - longest < len(made.train.tokens) <= 2_000
    share = 2_000 / len(whole.train.tokens)
    held = len(made.valid.tokens) / len(whole.valid.tokens)
    assert share <= held < share + longest / len(whole.valid.tokens)
    assert made.card["limit"] == 2_000
    assert made.card["made_from"]["fingerprint"] == whole.fingerprint
    for i in range(24):
        shutil.copy(texts / "text" / f"{i:02d}.txt", tmp_path / f"{23 - i:02d}.txt")
    other = prepare(data_of(texts, path=f"{tmp_path}/*.txt"), 0, quiet=True)
    again = export.write(other, tmp_path / "tokens", 2_000)
    assert documents_of(again.train) == documents_of(made.train)
    assert documents_of(again.valid) == documents_of(made.valid)


def test_bytes_have_no_widths_and_marks_stay(tmp_path):
    data = base.get_config().data
    data.update(source="synthetic", task="variables", documents=20, cache=str(tmp_path))
    whole = prepare(origin_of(data), 0, quiet=True)
    made = export.write(whole, tmp_path / "tokens")
    for name in ("train", "valid"):
        ours, theirs = getattr(made, name), getattr(whole, name)
        for field in ("tokens", "answers", "gaps"):
            np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field))
        assert ours.bytes_of is None
    assert theirs.gaps is not None and named(tmp_path / "tokens").has_answers
    assert corpora.encoder_of(named(tmp_path / "tokens")).name == "bytes"


def test_the_files_are_those_of_the_cache(tmp_path, texts):
    whole = prepare(data_of(texts), 0, quiet=True)
    made = export.write(whole, tmp_path / "tokens")
    files = {path.name: path.read_bytes() for path in made.folder.iterdir()}
    assert {"train.bytes", "tokenizer.json"} <= set(files)
    for name in set(files) - {"corpus.json", "tokenizer.json"}:
        assert files[name] == (whole.folder / name).read_bytes()
    assert made.fingerprint == whole.fingerprint


def test_groups_of_documents_stay(tmp_path):
    data = base.get_config().data
    data.update(hold_out="package", cache=str(tmp_path))
    whole = prepare(origin_of(data), 0, quiet=True)
    made = export.write(whole, tmp_path / "tokens", 10**6)
    group_of = dict(zip(whole.train.digests, whole.train.groups, strict=True))
    numbers = zip(made.train.digests, made.train.groups, strict=True)
    pairs = {(group_of[digest], number) for digest, number in numbers}
    assert 10 < len({old for old, _ in pairs}) == len({new for _, new in pairs}) == len(pairs)


def test_bytes_of_a_token_that_depend_on_its_place_are_kept(tmp_path, texts):
    """A tokenizer that leaves spaces out counts them with the word before, or the one behind."""
    import tokenizers

    model = tokenizers.models.WordLevel({"?": 0, "the": 1, "of": 2}, unk_token="?")
    words_alone = tokenizers.Tokenizer(model)
    words_alone.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words_alone.save(str(tmp_path / "words.json"))
    whole = prepare(data_of(texts, tokenizer=f"{tmp_path}/words.json"), 0, quiet=True)
    made = export.write(whole, tmp_path / "tokens")
    np.testing.assert_array_equal(made.train.bytes_of, whole.train.bytes_of)
    assert not made.lossless
    splits = (made.card["splits"][name]["bytes"] for name in corpora.SPLITS)
    assert sum(splits) == sum(path.stat().st_size for path in (texts / "text").iterdir())
    everything = made.whole()
    assert documents_of(everything) == documents_of(whole.train) | documents_of(whole.valid)


def test_a_folder_is_written_once_and_a_limit_must_hold_a_document(texts, tmp_path):
    whole = prepare(data_of(texts), 0, quiet=True)
    with pytest.raises(DataError, match="--limit=5 is less than the first document"):
        export.write(whole, tmp_path / "few", 5)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match="exists already"):
        export.write(whole, texts / "tokens")


def test_a_folder_that_was_changed_is_refused(texts, tmp_path):
    folder = tmp_path / "tokens"
    shutil.copytree(texts / "tokens", folder)
    for name in ("train.tokens", "train.bytes", "valid.starts.npy"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(DataError, match="has changed since it was written; write it again"):
            corpora.of_folder(str(folder))
        (folder / name).write_bytes(whole)
    corpora.of_folder(str(folder))


@pytest.mark.parametrize("format_", [None, corpora.FORMAT + 1])
def test_a_folder_of_another_format_is_refused(texts, tmp_path, format_):
    folder = tmp_path / "tokens"
    shutil.copytree(texts / "tokens", folder)
    card = json.loads((folder / "corpus.json").read_text())
    card.pop("format")
    (folder / "corpus.json").write_text(json.dumps(card | ({"format": format_} if format_ else {})))
    refused = (
        f"has format {format_}, and this version reads {corpora.FORMAT}; write it again: "
        "scripts/prepare_data.py --tokens_out"
    )
    with pytest.raises(DataError, match=refused):
        corpora.of_folder(str(folder))
    words = recipe(**{"data.tokens": folder})
    out = here("train.py", *words, f"--workdir={tmp_path}/run", code=65)
    assert refused in out.splitlines()[-1]


def test_prepared_tokens_have_a_tokenizer_or_name_it_as_missing(texts, tmp_path):
    ours = corpora.encoder_of(named(texts / "tokens"))
    theirs = tokenizer.load(f"{texts}/bpe.json")
    assert ours.hash == theirs.hash and ours.decode(ours.encode("the of")) == "the of"
    folder = tmp_path / "tokens"
    shutil.copytree(texts / "tokens", folder)
    (folder / "tokenizer.json").unlink()
    missing = corpora.encoder_of(named(folder))
    assert (missing.vocab, missing.hash) == (300, theirs.hash)
    with pytest.raises(DataError, match="x cannot be tokenized: .* no tokenizer.json"):
        missing.encode("the", "x")
    with pytest.raises(DataError, match="cannot be decoded"):
        missing.decode([1])
    tokenizer.train_bpe(["a b c"], 260).save(str(folder / "tokenizer.json"))
    with pytest.raises(DataError, match="is not the tokenizer of the tokens"):
        corpora.encoder_of(named(folder)).encode("the")


def test_fields_without_effect_beside_tokens_are_refused(texts):
    """All at once, of a training and of an evaluation."""
    fields = {"source": "text", "path": "a/*.txt", "tokenizer": "bpe.json", "field": "body"}
    fields |= {"valid_fraction": 0.2, "choose_fraction": 0.2, "cache": "there"}
    for name, mistakes in (("rope", problems_of), ("eval", lambda read: check.read(read)[1])):
        config = import_module(f"configs.{name}").get_config()
        config.data.tokens = f"{texts}/tokens"
        assert mistakes(config) == []
        known = {field: value for field, value in fields.items() if field in config.data}
        config.data.update(known)
        problems = "\n".join(mistakes(config))
        for field, value in known.items():
            assert f"data.{field} = {value!r} has no effect with data.tokens" in problems
        config = import_module(f"configs.{name}").get_config()
        config.data.tokens = "no/such"
        assert "no corpus.json in 'no/such'" in "\n".join(mistakes(config))


def test_a_run_of_tokens_keeps_no_field_of_a_text(texts):
    config = import_module("configs.rope").get_config()
    config.data.tokens = f"{texts}/tokens"
    run = load(config)
    own = {"mask_documents": False, "answers_only": False, "prefix": None}
    assert schema.as_fields(run)["data"] == own | {"source": "tokens", "tokens": f"{texts}/tokens"}
    assert load(schema.as_fields(run)) == run
    config.data.tokens = ""
    assert load(config) == load(import_module("configs.rope").get_config())


def test_a_fine_tuning_takes_the_tokens_of_its_source_or_others(texts, tmp_path):
    source = import_module("configs.rope").get_config()
    source.data.tokens = f"{texts}/tokens"
    kept = schema.as_fields(load(source)) | {"format": FORMAT}
    (tmp_path / "config.json").write_text(json.dumps(kept))

    def tuned(**fields):
        config = import_module("configs.finetune").get_config()
        config.init_from = str(tmp_path)
        config.data.update(fields)
        return config

    assert load(tuned()).data.source.tokens == f"{texts}/tokens"
    shutil.copytree(texts / "tokens", tmp_path / "others")
    assert load(tuned(tokens=f"{tmp_path}/others")).data.source.tokens == f"{tmp_path}/others"
    other = tuned(source="stdlib")
    assert schema.from_fields(resolve(other.to_dict())).data.source == source_of()


BLOCKED = """
import runpy, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"{{name}} is not installed here", name=name)

sys.meta_path.insert(0, Missing())
sys.argv = {words!r}
sys.path.insert(0, {root!r})
runpy.run_path(sys.argv[0], run_name="__main__")
"""
HEAVY = ("datasets", "wandb", "tokenizers", "matplotlib", "pandas", "submitit")


def without_packages(*words, code=0):
    source = BLOCKED.format(blocked=HEAVY, words=list(map(str, words)), root=str(ROOT))
    return python("-c", source, code=code)


@pytest.fixture(scope="module")
def trained(texts, tmp_path_factory):
    """Trained and evaluated where those packages are missing."""
    run = tmp_path_factory.mktemp("runs") / "run"
    fields = recipe(**{"data.tokens": f"{texts}/tokens"})
    out = without_packages("train.py", *fields, f"--workdir={run}")
    assert "done: 12 steps" in out
    return run, without_packages("eval_extrapolation.py", f"--workdir={run}", *SMALL)


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained[0], tmp_path / "run")


def test_training_and_evaluating_take_no_more_packages(trained, texts):
    run, out = trained
    assert out.count("warning: no pictures: matplotlib is not installed here") == 1
    assert not list(run.glob("plots/*.png"))
    rows = rows_of(run)
    assert {row["evaluation"] for row in rows} == {"held-out"}
    assert {row["text"] for row in rows} == {f"held out of tokens:{texts}/tokens"}
    assert all(row["bpb"] for row in rows)


def test_the_same_text_gives_the_same_numbers(trained, texts, tmp_path):
    """From text and tokenizer, and from its tokens: the same digest of the weights."""
    whole = prepare(data_of(texts), 0, quiet=True)
    export.write(whole, tmp_path / "tokens")
    place = {"data.source": "text", "data.path": f"{texts}/text/*.txt", "data.valid_fraction": 0.3}
    place |= {"data.cache": tmp_path / "cache", "data.tokenizer": f"{texts}/bpe.json"}
    digests = []
    for name, fields in (("text", place), ("tokens", {"data.tokens": f"{tmp_path}/tokens"})):
        run = tmp_path / f"from-{name}"
        here("train.py", *recipe(**fields), f"--workdir={run}")
        digests.append(json.loads((run / "status.json").read_text())["digest"])
    assert digests[0] == digests[1]


def test_a_run_on_tokens_is_loaded_and_meets_other_texts(run, texts, call, tmp_path):
    *_, config, encoder = posenc_jax.load_run(run)
    assert config.data.source.tokens == f"{texts}/tokens" and encoder.vocab == 300
    (tmp_path / "news").mkdir()
    for i in range(3):
        (tmp_path / "news" / f"{i}.txt").write_text(words(100 + i))
    news = ["--config.data.source=text", f"--config.data.path={tmp_path}/news/*.txt"]
    call("eval_extrapolation.py", run, *SMALL, *news)
    data = data_of(texts, path=f"{tmp_path}/news/*.txt", valid_fraction=0.0)
    export.write(prepare(data, 0, quiet=True), tmp_path / "newer")
    call("eval_extrapolation.py", run, *SMALL, f"--config.data.tokens={tmp_path}/newer")
    names = ("evaluation", "protocol", "length", "extension", "window")
    nll = {tuple(row[name] for name in names): row["nll"] for row in rows_of(run)}
    assert {key[0] for key in nll} == {"held-out", "news", "newer"}
    assert all(nll["news", *key[1:]] == value for key, value in nll.items() if key[0] == "newer")


def test_own_tokens_are_recognised_in_any_folder(run, texts, call, tmp_path):
    before = rows_of(run)
    shutil.copytree(texts / "tokens", tmp_path / "moved")
    moved = f"--config.data.tokens={tmp_path}/moved"
    out = call("eval_extrapolation.py", run, *SMALL, moved)
    assert "cells cached" in out and rows_of(run) == before
    words = recipe(**{"data.tokens": f"{tmp_path}/moved"})
    assert "already done" in here("train.py", *words, f"--workdir={run}")


def test_tokens_of_another_tokenizer_are_refused(run, texts, call, tmp_path):
    whole = prepare(data_of(texts, tokenizer="bytes"), 0, quiet=True)
    export.write(whole, tmp_path / "bytes")
    other = f"--config.data.tokens={tmp_path}/bytes"
    out = call("eval_extrapolation.py", run, *SMALL, other, code=65)
    assert "are of the tokenizer bytes, and the run was trained on those of" in out


def test_text_without_the_package_is_an_error_in_one_line(run, texts):
    news = ["--config.data.source=text", f"--config.data.path={texts}/text/*.txt"]
    out = without_packages("eval_extrapolation.py", f"--workdir={run}", *SMALL, *news, code=65)
    assert "text cannot be tokenized: tokenizers is not installed here" in out
    assert "Traceback" not in out


def test_prepare_data_says_what_its_flags_need(texts):
    out = script("prepare_data.py", *text_of(texts), "--limit=3", code=2)
    assert "--limit must be at least 1 and needs --tokens_out" in out
    out = script("prepare_data.py", *text_of(texts), "--vocab=5", f"--out={texts}/5.json", code=2)
    assert "--vocab must be at least 257" in out
    tokens = ["--config=configs/rope.py", f"--config.data.tokens={texts}/tokens"]
    assert "are already prepared" in script("prepare_data.py", *tokens, code=2)
