"""Runs that train a part of another run's model, or an encoding around that run's."""

import shutil

import jax.numpy as jnp
import numpy as np
import pytest
from running import TINY, script

import posenc_jax
from configs import finetune, ladder
from posenc_jax.config import load
from posenc_jax.runs import parameters
from posenc_jax.runs.subject import digest_of, newest_card, types_of, weights_of
from posenc_jax.runs.workdir import Workdir
from posenc_jax.runtime.errors import ConfigError
from posenc_jax.runtime.trees import by_path

TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, 256, (2, 32)))
LORA = {"model.lora": 2, "steps": 6, "save_every": 3, "extension.scale": 2.0, "train_length": 64}


@pytest.fixture(scope="module")
def tuned(call, whole, tmp_path_factory):
    """A run of low-rank parts, and its base."""
    folder = tmp_path_factory.mktemp("tuned")
    shutil.copytree(whole[0], folder / "base")
    fields = {"init_from": folder / "base"} | LORA
    out = call("train.py", folder / "run", config="finetune", **fields)
    return folder, out


def config_of(run, recipe=finetune, **fields):
    made = recipe.get_config() if recipe is finetune else recipe.get_config(fields.pop("rung"))
    made.init_from, made.train_length, made.extension.scale = str(run), 64, 2.0
    made.update_from_flattened_dict({n: v for n, v in TINY.items() if n.startswith("valid")})
    for name, value in fields.items():
        group, _, field = name.rpartition(".")
        (made[group] if group else made)[field] = value
    return load(made)


def logits_of(parts):
    return np.asarray(parts.model(TOKENS, parts.encoding))


def begun(run, **fields):
    """The parts with which a run begins, and those of the run that it starts from."""
    config = config_of(run, **fields)
    parts = parameters.blank(config).replace(weights_of(config)[0])
    plain = config_of(run, **{"extension.name": config.extension.name})
    return parts, parameters.blank(plain).replace(weights_of(plain)[0])


@pytest.mark.parametrize(
    ("fields", "arrays"),
    [
        ({"encoding.name": "randomized", "encoding.positions": "chunks", "train_length": 32}, 0),
        ({"encoding.name": "ssmax", "encoding.bias": True, "encoding.each": "model"}, 2),
        ({"encoding.name": "plus", "encoding.added": "t5"}, 2),
        ({"encoding.frequencies": "trained", "encoding.per": "layer"}, 1),
        ({"encoding.frequencies": "trained", "encoding.per": "head"}, 1),
        (
            {
                "encoding.name": "randomized",
                "encoding.tail": 3,
                "train_length": 32,
                "encoding.inner": "ssmax:bias=True:frequencies=trained",
            },
            3,
        ),
        ({"model.lora": 4}, 0),
    ],
)
def test_what_is_new_changes_nothing_until_it_is_trained(whole, fields, arrays):
    if fields.get("encoding.frequencies"):
        fields = {"encoding.name": "rope"} | fields
    parts, plain = begun(whole[0], **fields)
    assert len(parameters.trained_arrays(parts.encoding)) == arrays
    np.testing.assert_allclose(logits_of(parts), logits_of(plain), atol=2e-6)


def test_a_factor_that_is_not_neutral_is_refused(whole):
    with pytest.raises(Exception, match="encoding.name: 'rope' in .*, 'ssmax' here"):
        config_of(whole[0], **{"encoding.name": "ssmax"})


@pytest.mark.parametrize("rung", ladder.RUNGS)
def test_every_rung_of_the_ladder_begins_as_the_run_and_trains_its_part(whole, rung):
    config = config_of(whole[0], ladder, rung=rung, train_length=32)
    parts = parameters.blank(config).replace(weights_of(config)[0])
    plain = config_of(whole[0])
    plain = parameters.blank(plain).replace(weights_of(plain)[0])
    np.testing.assert_allclose(logits_of(parts), logits_of(plain), atol=2e-6)
    assert config.encoding.name == "randomized"


def test_low_rank_parts_are_trained_beside_a_base_that_stays(tuned, call, whole):
    folder, out = tuned
    model, encoding, config, _ = posenc_jax.load_run(folder / "run")
    base = by_path(posenc_jax.load_run(whole[0]).model)
    ours = by_path(model)
    changed = {n for n in base if not np.array_equal(base[n], ours[n])}
    lora = [name for name in ours if ".lora_" in name]
    assert not changed and len(lora) == 12 and all(np.asarray(ours[n]).any() for n in lora)
    assert f"{sum(ours[name].size for name in lora):,} of them trained" in out
    saved = list((folder / "run" / "checkpoints" / "6" / "state").glob("params.*"))
    assert len(saved) == 12
    call("eval_extrapolation.py", folder / "run", "--config.multiples=1,2")
    assert "abc" in script("generate.py", folder / "run", "--prompt=abc", "--tokens=4")


def digest(run):
    return digest_of(newest_card(run))


def test_a_run_of_low_rank_parts_resumes_to_the_same_weights(tuned, call, tmp_path):
    fields = {"init_from": tuned[0] / "base"} | LORA
    call("train.py", tmp_path / "run", config="finetune", **fields, stop_at=3, code=75)
    call("train.py", tmp_path / "run", config="finetune", **fields)
    assert digest(tmp_path / "run") == digest(tuned[0] / "run")


def test_weights_of_every_layer_by_number_are_trained(call, whole, tmp_path):
    fields = LORA | {"model.lora": None, "trains": "blocks.0.mlp.*", "init_from": whole[0]}
    call("train.py", tmp_path / "run", config="finetune", **fields)
    base, ours = (by_path(posenc_jax.load_run(run).model) for run in (whole[0], tmp_path / "run"))
    changed = {name for name in base if not np.array_equal(base[name], ours[name])}
    assert changed == {name for name in base if ".mlp." in name}


def test_a_sink_stays_outside_what_is_put_around_an_encoding(call, tmp_path):
    call("train.py", tmp_path / "base", **{"encoding.sink": True})
    inner = {"encoding.inner": "ssmax:bias=True", "encoding.tail": 3, "train_length": 32}
    parts, plain = begun(tmp_path / "base", **{"encoding.name": "randomized"} | inner)
    assert np.asarray(parts.encoding.logit).any()
    np.testing.assert_allclose(logits_of(parts), logits_of(plain), atol=2e-6)


def test_low_rank_parts_are_trained_on_from_a_run_of_them(tuned, call, tmp_path):
    folder, _ = tuned
    fields = LORA | {"init_from": folder / "run"}
    call("train.py", tmp_path / "more", config="finetune", **fields)
    one, other = (posenc_jax.load_run(run).model for run in (folder / "run", tmp_path / "more"))
    same = {n for n, leaf in by_path(one).items() if np.array_equal(leaf, by_path(other)[n])}
    assert same == {name for name in by_path(one) if ".lora_" not in name}
    assert types_of(tmp_path / "more").keys() == by_path(one).keys()


def test_parts_without_a_run_to_begin_with_are_refused(call, tmp_path):
    out = call("train.py", tmp_path / "run", **{"model.lora": 2}, code=2)
    assert "give init_from=RUN" in out


@pytest.mark.parametrize(
    ("encoding", "problem"),
    [
        ({"name": "randomized", "positions": "chunks"}, "rows of 64 tokens, which fill"),
        ({"name": "randomized", "tail": 64}, "of 64 tokens is too short"),
    ],
)
def test_jumps_without_room_are_refused(whole, encoding, problem):
    fields = {f"encoding.{name}": value for name, value in encoding.items()}
    with pytest.raises(ConfigError, match=problem):
        config_of(whole[0], **fields, **{"extension.scale": 4.0 if "tail" in encoding else 2.0})


def test_jumps_go_on_to_a_larger_scale(whole, tmp_path):
    jumps = {"encoding.name": "randomized", "train_length": 32}
    before = config_of(whole[0], **jumps | {"encoding.positions": "chunks"})
    run = Workdir(tmp_path / "run")
    run.create()
    run.claim(before)
    own = {"encoding.positions": "sorted", "encoding.tail": 3, "extension.scale": 4.0}
    after = config_of(run.path, **jumps | own)
    assert (before.encoding.options["max_position"], after.encoding.options["tail"]) == (64, 3)
    assert after.encoding.options["max_position"] == 128


def test_a_base_that_is_gone_damaged_or_another_is_named_by_its_digest(tuned, call, tmp_path):
    folder, _ = tuned
    own = digest(folder / "base")
    run = shutil.copytree(folder / "run", tmp_path / "elsewhere" / "run")
    (folder / "base").rename(tmp_path / "moved")
    fields = LORA | {"init_from": folder / "run"}
    try:
        out = call("eval_extrapolation.py", run, code=76)
        assert f"began with the weights of digest {own}, and {folder / 'base'} is not there" in out
        out = call("train.py", run, config="finetune", **fields, code=76)
        assert f"{folder / 'run'} has no checkpoint of it. Put that run at" in out
        fields["init_from"] = shutil.copytree(tmp_path / "moved", tmp_path / "damaged")
        for card in fields["init_from"].glob("checkpoints/*/card/metadata"):
            card.write_text(card.read_text().replace('"step"', '"stop"'))
        call("train.py", run, config="finetune", **fields, code=76)
        assert not (run / "checkpoints" / "quarantine").exists()
        fields["init_from"] = tmp_path / "moved"
        assert "already done" in call("train.py", run, config="finetune", **fields)
        call("eval_extrapolation.py", run, "--config.multiples=1")
    finally:
        (tmp_path / "moved").rename(folder / "base")


def test_a_base_that_was_trained_further_is_found_by_its_digest(call, whole, tmp_path):
    base = shutil.copytree(whole[0], tmp_path / "base")
    later = (base / "checkpoints" / "12").rename(tmp_path / "12")
    call("train.py", tmp_path / "run", config="finetune", **LORA | {"init_from": base})
    later.rename(base / "checkpoints" / "12")
    ours = by_path(posenc_jax.load_run(tmp_path / "run").model)
    for name, leaf in by_path(posenc_jax.load_run(base, 8).model).items():
        np.testing.assert_array_equal(ours[name], leaf)


def test_an_archive_holds_the_low_rank_parts_and_reads_the_base_beside_it(tuned, tmp_path):
    folder, _ = tuned
    script("export.py", folder / "run", f"--out={tmp_path / 'run.tar.xz'}")
    shutil.unpack_archive(tmp_path / "run.tar.xz", tmp_path / "unpacked")
    (packed,) = (tmp_path / "unpacked").iterdir()
    size = sum(path.stat().st_size for path in packed.glob("checkpoints/*/state/**/*"))
    whole = sum(path.stat().st_size for path in folder.glob("base/checkpoints/12/state/**/*"))
    assert size < 0.5 * whole
    expected = by_path(posenc_jax.load_run(folder / "run").model)
    (folder / "base").rename(tmp_path / "unpacked" / "base")
    try:
        for name, leaf in by_path(posenc_jax.load_run(packed).model).items():
            np.testing.assert_array_equal(leaf, expected[name])
    finally:
        (tmp_path / "unpacked" / "base").rename(folder / "base")
