"""Training and evaluation on several devices of one process."""

import json
import os
import shutil

import numpy as np
import pytest
from curves import assert_equal_evaluations, rows_of
from llamas import LLAMA, drawn, write
from running import ROOT, finish, python
from sizes import VARIANTS

from posenc_jax import registry, schemes
from posenc_jax.data import tokenizer
from posenc_jax.evaluation.protocols import revised
from posenc_jax.pretrained.adopt import adopt
from posenc_jax.runs.metrics import read_metrics


def on_devices(count, *words, flags="", code=0):
    """Run Python with this many devices of the CPU."""
    flags = f"{flags} --xla_force_host_platform_device_count={count}"
    env = {"XLA_FLAGS": flags, "PYTHONPATH": f"{ROOT}:{ROOT}/tests"}
    return python(*words, code=code, env=env)


@pytest.mark.slow
def test_a_run_resumes_on_another_number_of_devices(program, tmp_path):
    """1, then 8 with everything cut over them, then 2; the losses are those of one device."""

    def losses(workdir, *stops, **more):
        for devices, stop_at, sharding in stops:
            flags = f"--xla_force_host_platform_device_count={devices}"
            env = {"XLA_FLAGS": f"{os.environ['XLA_FLAGS']} {flags}"}
            fields = {"accumulate": 1, "batch_size": 8, "log_every": 1}
            fields |= {"stop_at": stop_at, "sharding": sharding} | more
            out = finish(program("train.py", workdir, env=env, **fields), 75 if stop_at else 0)
            assert f"{devices} x cpu" in out
        return [line["loss"] for line in read_metrics(workdir / "metrics.jsonl")]

    one = losses(tmp_path / "one", (1, 0, "replicated"))
    stops = (1, 4, "replicated"), (8, 8, "fsdp"), (2, 0, "replicated")
    many = losses(tmp_path / "many", *stops, **{"model.attention": "blockwise"})
    np.testing.assert_allclose(many, one, atol=1e-5)
    assert len(one) == 12 and one[0] != one[-1]


def test_a_run_of_cut_rows_resumes_on_one_device_with_whole_rows(program, call, tmp_path):
    """Its status states the devices of the latest start."""
    run, flags = tmp_path / "run", "--xla_force_host_platform_device_count=2"
    env = {"XLA_FLAGS": f"{os.environ['XLA_FLAGS']} {flags}"}
    finish(program("train.py", run, env=env, sequence=2, stop_at=4), 75)
    counts = [json.loads((run / "status.json").read_text())["machine"]["devices"]]
    advice = "a resumed run may set it: --config.sequence=1"
    assert advice in call("train.py", run, sequence=2, code=2)
    call("train.py", run, sequence=1)
    counts.append(json.loads((run / "status.json").read_text())["machine"]["devices"])
    assert counts == [2, 1]


@pytest.mark.slow
def test_weights_and_moments_are_cut_over_all_devices():
    code = """
import jax
from sizes import config_of
from posenc_jax.runs import parameters
from posenc_jax.runtime import devices
from posenc_jax.training import optimizer, train_step
config = config_of("alibi")
state = train_step.fresh_state(parameters.make(config).params(), optimizer.make(config))
placed = jax.device_put(state, devices.shardings(state, devices.make_mesh(), "fsdp"))
kernel = placed["params"]["model"]["blocks.mlp.up.kernel"]
moments = [x for x in jax.tree.leaves(placed["opt"]) if x.shape == kernel.shape]
assert kernel.addressable_shards[0].data.size * 8 == kernel.size
assert len(moments) == 2 and all(x.sharding == kernel.sharding for x in moments)
"""
    on_devices(8, "-c", code)


@pytest.mark.slow
def test_a_state_is_born_saved_and_resumed_as_shares(tmp_path):
    """Of a state of 12 bytes a parameter each of eight devices holds 1.5, and a start and a save
    take at most one more: arrays, and what the programs of the start need."""
    code = """
import gc, sys, jax
from pathlib import Path
from sizes import config_of
from posenc_jax.runs import checkpoints
from posenc_jax.training import loop

def held():
    many = [array for array in jax.live_arrays() if array.sharding.num_devices > 1]
    here = [one.data for array in many for one in array.addressable_shards if not one.device.id]
    here += [array for array in jax.live_arrays() if array.devices() == {jax.devices()[0]}]
    return sum({data.unsafe_buffer_pointer(): data.nbytes for data in here}.values())

seen, programs, jit = {}, [], jax.jit
def noted(name, function):
    def call(*arguments):
        seen[name] = max(seen.get(name, 0), held())
        return function(*arguments)
    return call
def measured(function, **options):
    program = jit(function, **options)
    def call(*arguments):
        taken = program.lower(*arguments).compile().memory_analysis()
        programs.append(taken.temp_size_in_bytes + taken.output_size_in_bytes)
        return program(*arguments)
    return program if 'in_shardings' in options else call
loop.first_screen = noted('start', loop.first_screen)
checkpoints.digests = noted('save', checkpoints.digests)
fields = {'model.width': 512, 'model.heads': 8, 'model.vocab': None, 'train_length': 16}
fields |= {'data.source': 'synthetic', 'data.documents': 40, 'batch_size': 8, 'save_every': 1}
for stop_at in (1, 0):
    config = config_of('alibi', sharding='fsdp', steps=2, warmup_steps=1, stop_at=stop_at, **fields)
    jax.jit = jit if seen else measured
    loop.train(config, Path(sys.argv[1]))
    gc.collect()
config = loop.subjects.run_config(Path(sys.argv[1]))
count = loop.parameters.blank(config).counts()['total']
print([*(n / count for n in seen.values()), *(n / count for n in programs)])
"""
    found = json.loads(on_devices(8, "-c", code, tmp_path / "run").splitlines()[-1])
    assert len(found) > 3 and 1.49 < min(found[:2]) and max(found) < 2.5, found


SHARED = [
    ("rope", {}),
    ("rope", {"model.scan": False}),
    ("rope", {"model.remat": True, "model.tied": False, "model.kv_heads": 2}),
    ("rope", {"model.latent_dim": 16, "model.rotary_dim": 8}),
    ("rope", {"model.lora": 4, "model.remat": True}),
    *((name, {}) for name in ("t5", "fox", "retention", "hybrid")),
]


@pytest.mark.slow
def test_weights_that_devices_share_are_gathered_and_tokens_are_not():
    """Loss and gradients are those of one device."""
    flags = "--xla_backend_optimization_level=0"
    out = on_devices(8, "tests/programs/sharing.py", json.dumps(SHARED), flags=flags)
    found = json.loads(out.splitlines()[-1])
    assert len(found) == len(SHARED)
    for name, (of_loss, of_gradients, gathered) in found.items():
        assert max(of_loss, of_gradients) < 1e-6 and 0 < gathered <= 1, (name, found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("length", "names"),
    [
        (62, sorted({*schemes.names(), *VARIANTS} - {"cope"})),
        (2304, ["rope", "fox", "alibi", "self_extend"]),  # in blocks
    ],
    ids=["every encoding, and a length that does not divide", "long rows"],
)
def test_rows_over_devices_have_the_losses_and_gradients_of_one(length, names):
    differences = differences_to_one_device(length, names)
    packed = [name for name in differences if name.endswith(" in documents")]
    assert len(packed) > 1 and {*differences} == {*names, *packed}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("length", "names"), [(62, ["rope@gpu", "selective_rope@gpu"]), (1024, ["rope@tpu"])]
)
def test_kernels_of_gathered_keys_have_the_losses_and_gradients_of_one(length, names):
    assert {*differences_to_one_device(length, names)} == {*names}


def differences_to_one_device(length, names):
    words = "tests/programs/cutting.py", length, *names
    out = on_devices(4, *words, flags="--xla_backend_optimization_level=0")
    differences = json.loads(out.splitlines()[-1])
    for name, found in differences.items():
        for what, limit in (("losses", 2e-6), ("gradients", 5e-6)):
            values = [value for key, value in found.items() if key.endswith(what)]
            assert len(values) == 2 and np.max(values) < limit, (name, found)
    return differences


@pytest.mark.slow
def test_devices_that_share_rows_do_the_same_work():
    """Pairs of blocks that each device visits. Consecutive tokens would give the last of 2, 4 and 8
    devices 1.47, 1.71 and 1.85 times the mean."""
    code = """
import json, sys, jax, jax.numpy as jnp
import models, posenc_jax
from collections import Counter
from sizes import DIMS, VOCAB
from posenc_jax.attention import blockwise
from posenc_jax.runtime import devices
loop, visited = jax.lax.fori_loop, Counter()
def counted(first, pairs, *more):
    device = jax.lax.axis_index('sequence')
    jax.debug.callback(lambda n, pairs: visited.update({int(n): int(pairs)}), device, pairs)
    return loop(first, pairs, *more)
jax.lax.fori_loop = counted
sys.modules[blockwise.__module__].UNROLLED = 0
fields = dict(width=DIMS.width, heads=DIMS.heads, layers=1, vocab=VOCAB)
model = models.Transformer(models.Config(**fields), jax.random.key(0))
encoding = posenc_jax.build('fox', DIMS, key=jax.random.key(0))
rows, found = jnp.zeros((1, 4096), jnp.int32), {}
for count in (2, 4, 8):
    mesh = devices.make_mesh(jax.devices()[:count], sequence=count)
    visited.clear()
    jax.jit(lambda rows: model.losses(rows, rows, encoding, mesh=mesh))(rows)
    jax.effects_barrier()
    found[count] = [visited[n] for n in range(count)]
print(json.dumps(found))
"""
    out = on_devices(8, "-c", code, flags="--xla_backend_optimization_level=0")
    print(visited := json.loads(out.splitlines()[-1]))
    assert visited == {"2": [68] * 2, "4": [34] * 4, "8": [66] * 8}


# Far context decides nothing for so small a reference, so longppl takes every target.
PROGRAM = """
import sys
import eval_extrapolation
from posenc_jax.evaluation.protocols import longppl
longppl.GAIN, longppl.LOSS = -99, 99
sys.exit(eval_extrapolation.main(sys.argv))
"""


def evaluated(run, folder, devices, *words, code=0):
    shutil.copytree(run, folder)
    command = [f"--workdir={folder}", "--config.wandb.mode=disabled", *words]
    return on_devices(devices, "-c", PROGRAM, *command, code=code)


ASKED = ["--config.multiples=0.5,1,2,8", "--config.documents=5", "--config.last=8"]
ORDERED = {"data.task": "variables", "data.variant": "ordered", "data.gaps": "octaves"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoding", "extensions"),  # without a bias and with regions, with a curve, with gates
    [("rope", "none,self_extend"), ("alibi", "none"), ("fox", "none")],
    ids=["rope", "alibi", "fox"],
)
def test_an_evaluation_on_four_devices_equals_one(encoding, extensions, call, tmp_path):
    """Every protocol of a text with answers, and windows that do not fill the devices."""
    fields = {"data.source": "synthetic", "data.documents": 60, "data.path": None} | ORDERED
    call("train.py", tmp_path / "run", config=encoding, **fields)
    chosen = {*registry.protocols()} - {"revised"}  # which needs an adopted model
    words = [*ASKED, f"--config.extensions={extensions}", f"--config.protocols={','.join(chosen)}"]
    # The reference of longppl is trained at the longest length.
    call("train.py", tmp_path / "reference", config=encoding, train_length=8 * 32, **fields)
    words.append(f"--config.reference={tmp_path / 'reference'}")
    evaluated(tmp_path / "run", tmp_path / "1", 1, *words)
    assert {row["protocol"] for row in rows_of(tmp_path / "1")} == chosen
    for sequence in (1, 2, 4):
        folder = tmp_path / f"4 devices, {sequence} per window"
        evaluated(tmp_path / "run", folder, 4, *words, f"--config.sequence={sequence}")
        assert_equal_evaluations(tmp_path / "1", folder)


@pytest.mark.slow
def test_an_adopted_model_on_four_devices_equals_one(tmp_path):
    sentences = [
        form.format(name, value) * 4
        for form, values in revised.FORMS.items()
        for name in revised.NAMES
        for value in values.split()
    ]
    config = LLAMA | {"vocab_size": 600}
    folder = write(tmp_path / "llama", drawn(config=config), config)
    (folder / "tokenizer.json").write_text(tokenizer.train_bpe(sentences, 590).to_str())
    adopt(folder, tmp_path / "run")
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(" ".join(map(str, range(number, number + 400))))
    words = ["--config.data.source=text", f"--config.data.path={tmp_path}/*.txt"]
    words += ["--config.lengths=256", "--config.protocols=revised", "--config.window=False"]
    cases = [(4, 1, 0), (4, 4, 0), (4, 2, 64), (4, 1, 64)]
    cases = [(*case, sharding) for case in cases for sharding in ("replicated", "fsdp")]
    whole = [(1, 1, piece, "replicated") for piece in (0, 64)]
    for count, sequence, piece, sharding in (*whole, *cases):
        folder = tmp_path / f"{count}-{sequence}-{piece}-{sharding}"
        more = [f"--config.sequence={sequence}", f"--config.sharding={sharding}"]
        more += [f"--config.piece={piece}"] * bool(piece)
        evaluated(tmp_path / "run", folder, count, *words, *more)
        assert_equal_evaluations(tmp_path / f"1-1-{piece}-replicated", folder)


@pytest.mark.slow
def test_a_cache_over_devices_decodes_as_on_one():
    """A prompt, pieces and single tokens; for one token no device gets the keys of others."""
    code = """
import json, re, sys, jax, jax.numpy as jnp, numpy as np
import models, posenc_jax
from posenc_jax import schemes
from sizes import DIMS, VOCAB
from posenc_jax.runtime import devices
fields = dict(width=DIMS.width, heads=DIMS.heads, kv_heads=1, layers=2, vocab=VOCAB)
config = models.Config(**fields)
model, size = models.Transformer(config, jax.random.key(0)), 512
mesh = devices.make_mesh(sequence=4)
tokens = jax.random.randint(jax.random.key(1), (2, 90), 0, VOCAB)
step = jax.jit(lambda *arguments: model.step(*arguments), donate_argnums=2)
for case in sys.argv[1:]:
    name, extension = case.split('@')
    encoding = posenc_jax.build(name, DIMS, key=jax.random.key(3))
    encoding = posenc_jax.extend(extension, encoding, size / DIMS.train_length)
    one, cut = (models.init_cache(config, encoding, 2, size, mesh=m) for m in (None, mesh))
    for first, last in ((0, 40), (40, 41), (41, 88), (88, 89), (89, 90)):
        logits, one = step(tokens[:, first:last], encoding, one)
        of_cut, cut = step(tokens[:, first:last], encoding, cut)
        np.testing.assert_allclose(of_cut, logits, rtol=2e-5, atol=2e-5, err_msg=case)
    shares = {held.k.addressable_shards[0].data.size * 4 == held.k.size for held in cut.layers}
    assert shares == {True}, case
    new = [models.generate(model, encoding, tokens, tokens=9, mesh=m) for m in (None, mesh)]
    np.testing.assert_array_equal(*new, err_msg=case)
found = {}
for name in schemes.names():  # the largest array that a token moves, as a share of a layer's keys
    encoding = posenc_jax.build(name, DIMS, key=jax.random.key(3))
    cut = models.init_cache(config, encoding, 2, encoding.reach or size, mesh=mesh)
    text = step.lower(tokens[:, :1], encoding, cut.replace(empty=False)).compile().as_text()
    moved = [0]
    for line in text.splitlines():
        if re.search(r' (all-gather|all-to-all|collective-permute)(-start)?\\(', line):
            shapes = re.findall(r'\\w+\\[([0-9,]*)\\]', line.split('=', 1)[1].split('(%')[0])
            moved += [np.prod([int(n) for n in shape.split(',') if n]) for shape in shapes]
    found[name] = float(max(moved) / min(held.k.size for held in cut.layers))
print(json.dumps(found))
"""
    cases = "rope@none", "alibi@none", "fox@none", "rope@self_extend", "t5@none", "fire@none"
    out = on_devices(4, "-c", code, *cases, "rope@window:size=66")
    moved = json.loads(out.splitlines()[-1])
    assert {*moved} == {*schemes.names()}
    assert {name for name, share in moved.items() if share > 0.25} == {"cope"}


@pytest.mark.slow
def test_generated_text_is_the_same_on_four_devices(whole):
    words = ["scripts/generate.py", whole[0], "--prompt=abc", "--tokens=40"]
    one, four = (on_devices(4, *words, f"--sequence={n}") for n in (1, 4))
    shared = on_devices(4, *words, "--sequence=4", "--sharding=fsdp")
    assert one == four == shared != ""
    for wrong, reason in ((0, "sequence must be"), (3, "sequence = 3 must divide the number")):
        assert reason in on_devices(4, *words, f"--sequence={wrong}", code=2)


def test_an_encoding_of_whole_rows_is_refused(call, tmp_path):
    reason = "encoding 'cope' reads whole rows, which cannot be cut over devices: use sequence = 1"
    assert reason in call("train.py", tmp_path / "cut", config="cope", sequence=2, code=2)
    call("train.py", tmp_path / "run", config="cope")
    words = "--config.sequence=4", "--config.lengths=16"
    assert reason in evaluated(tmp_path / "run", tmp_path / "copy", 4, *words, code=2)
    call("train.py", tmp_path / "rope", config="rope")
    words = *words, "--config.extensions=none,topk:k=4"
    out = evaluated(tmp_path / "rope", tmp_path / "other", 4, *words, code=2)
    assert reason.replace("cope", "rope") in out


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [("rope", "none"), ("alibi", "none"), ("fox", "none"), ("rope", "self_extend")]
)
def test_a_long_window_takes_a_share_of_the_memory_per_device(case):
    """131,072 tokens over four devices, by the compiled programs of a Llama-like model."""
    code = """
import sys, jax, jax.numpy as jnp
import models, posenc_jax
from posenc_jax.evaluation import losses
from posenc_jax.runtime import devices
name, extension = sys.argv[1:]
length = 131072
dims = posenc_jax.Dims(heads=8, head_dim=64, width=512, train_length=128)
fields = dict(width=512, heads=8, kv_heads=2, mlp_width=1408, layers=2, vocab=256)
fields['activation'] = 'swiglu'
model = models.Transformer(models.Config(**fields), jax.random.key(0))
encoding = posenc_jax.build(name, dims, key=jax.random.key(3))
encoding = posenc_jax.extend(extension, encoding, length / 128)
for count in (1, 4):
    mesh = devices.make_mesh(jax.devices()[:count], sequence=count)
    rows = jax.ShapeDtypeStruct((1, length + 1), jnp.int32, sharding=devices.by_rows(mesh))
    placed = devices.placed((model, encoding), mesh)
    compiled = losses.losses_of.lower(*placed, rows, length, mesh).compile()
    print(compiled.memory_analysis().temp_size_in_bytes)
"""
    one, four = map(int, on_devices(4, "-c", code, *case).split()[-2:])
    assert four < 0.3 * one
