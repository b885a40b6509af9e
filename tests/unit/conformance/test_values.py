"""Our functions against the published values of conformance/."""

import ast
import functools
import json
import sys
import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import latents
import numpy as np
import published
import pytest
from attending import KEY, call, compiled
from running import ROOT, committed

import posenc_jax
from conformance import checking
from conformance.checking import check, load
from posenc_jax import extensions, schemes
from posenc_jax.attention import rotate
from posenc_jax.encoding import Dims, Tokens
from posenc_jax.pretrained.rope import FULL, LOCAL_BASE, local_base_of, rope_of


def build(name, heads=1, head_dim=2, train_length=64, **options):
    dims = Dims(heads, head_dim, heads * head_dim, train_length)
    return posenc_jax.build(name, dims, KEY, **options)


# Our functions, as the subjects are called


def rotary(name):
    def extended(head_dim, base, train_length=None, scale=1.0, length=0, fraction=1.0, **options):
        size = int(head_dim / fraction)
        rope = build("rope", 1, size, train_length or 64, base=base, fraction=fraction)
        if "_" in name and name != "ntk_by_parts":  # dynamic or stepped
            scale = length / train_length
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a collapsed ramp
            extended = posenc_jax.extend(name, rope, scale, **options)
        return extended.for_rows(length).inv_freq, extended.gain

    return extended


def configuration(config, length=None, layer_type=FULL):
    """As adopt.py reads the file of any model type; what it refuses is skipped."""
    settings = {"rope_parameters": None, "rope_scaling": None, "rope_theta": 1e4} | config
    if config.get("model_type") in ("gemma3_text", "olmo3"):
        settings = {LOCAL_BASE: settings["rope_theta"]} | settings
    try:
        found = rope_of(settings)
        if layer_type != FULL and LOCAL_BASE in settings:
            found = found._replace(base=local_base_of(settings, found), extension={})
    except ValueError as error:
        raise NotImplementedError(str(error)) from error
    size = config.get("qk_rope_head_dim") or config.get("head_dim")
    size = size or config["hidden_size"] // config["num_attention_heads"]
    longest = config["max_position_embeddings"]
    original = found.original or longest
    rope = build("rope", 1, size, original, base=found.base, fraction=found.fraction)
    if found.extension:
        name, scale, *options = ({"name": 0, "scale": 0} | found.extension).items()
        rope = posenc_jax.extend(name[1], rope, scale[1], **dict(options))
    return rope.for_rows(length or 1).inv_freq, rope.gain


def stale(q, k, base, train_length, prompt, lambdas=None, short=None):
    """The last row of the pass over the tokens so far, whose keys are rotated anew."""
    length, size = q.shape
    logits = np.full((length - prompt, length), np.nan)
    for row, read in enumerate(range(prompt + 1, length + 1)):
        rope = build("rope", 1, size, train_length, base=base)
        if lambdas is None:
            rope = posenc_jax.extend("dynamic_ntk", rope, read / train_length)
        else:
            options = {"lambdas": lambdas, "short": short, "attention_factor": 1.0}
            rope = posenc_jax.extend("longrope", rope, 1.0, **options).for_rows(read)
        phase = rope.phase(jnp.arange(read))
        turned = [
            rotate(x[None, None, :read], phase.q_cos, phase.q_sin, phase.layout) for x in (q, k)
        ]
        logits[row, :read] = turned[1][0, 0] @ turned[0][0, 0, -1] / size**0.5
    return logits


def abf(head_dim, base):
    return posenc_jax.extend("abf", build("rope", 1, head_dim), 1.0, base=base).inv_freq


def drop(head_dim, base, train_length, keep="turned", clip="hard", built=False):
    if built and clip == "hard":
        return build("rope", 1, head_dim, train_length, base=base, keep=keep).inv_freq
    rope = build("rope", 1, head_dim, train_length, base=base)
    return posenc_jax.extend("drop", rope, 1.0, keep=keep, clip=clip).inv_freq


def heads_first(x):  # [T, H, K] -> [1, H, T, K]
    return jnp.swapaxes(jnp.asarray(x), 0, 1)[None]


def rope(x, positions, base, fraction, layout):
    _, heads, size = x.shape
    phase = build("rope", heads, size, base=base, fraction=fraction, layout=layout).phase(positions)
    return rotate(heads_first(x), phase.q_cos, phase.q_sin, layout)[0].swapaxes(0, 1)


def xpos(q, k, positions, base):
    _, heads, size = q.shape
    phase = build("xpos", heads, size, base=base).phase(jnp.asarray(positions))
    q = rotate(heads_first(q), phase.q_cos, phase.q_sin, phase.layout)
    k = rotate(heads_first(k), phase.k_cos, phase.k_sin, phase.layout)
    return jnp.einsum("bhqk,bhsk->hqs", q, k, precision="highest") / size**0.5


def sinusoidal(positions, width):
    empty = jnp.zeros((1, len(positions), width))
    return build("sinusoidal").embed(empty, jnp.asarray(positions))[0]


def longer(name):
    def table(table, scale):
        learned = build("learned", train_length=len(table)).replace(table=jnp.asarray(table))
        return posenc_jax.extend(name, learned, scale).table

    return table


def alibi(heads, length):
    return build("alibi", heads).bias(jnp.arange(length), jnp.arange(length))


def kerple_log(distance, r1, r2):
    encoding = build("kerple_log", len(r1)).replace(log_r1=jnp.log(r1), log_r2=jnp.log(r2))
    return encoding.curve(jnp.asarray(distance))


def kerple_power(distance, r1, p):
    encoding = build("kerple_power", len(r1))
    encoding = encoding.replace(log_r1=jnp.log(r1), logit_p=jax.scipy.special.logit(p / 2))
    return encoding.curve(jnp.asarray(distance))


def sandwich(distance, heads, dbar):
    return call(build("sandwich", heads, dbar=dbar), "curve", distance)


def fire(length, c, threshold, w1, b1, w2):
    encoding = build("fire", w2.shape[1], hidden=len(w1))
    encoding = encoding.replace(hidden_kernel=w1, hidden_bias=b1, kernel=w2)
    encoding = encoding.replace(log_c=jnp.log(c), log_threshold=jnp.log(threshold / 64))
    return call(encoding, "bias", np.arange(length), np.arange(length))


def relative(r, profiles, contiguous=True):
    rank, extent = profiles.shape
    encoding = build("relative", rank=rank, extent=extent).replace(profiles=jnp.asarray(profiles))
    rows = {"rows": r[None, :, None]}
    row = Tokens(np.arange(len(r)), features=rows, contiguous=contiguous)
    return call(encoding, "bias", row, row)[0, 0]


def weights_of(scores, encoding, **options):
    """The weights [T, S] of an encoding with these scores [T, S]."""
    queries, keys = scores.shape
    q = np.float32(scores * encoding.dims.head_dim**0.5)[None, :, None]
    identity = np.eye(keys, dtype=np.float32)[None, :, None]
    return compiled(q, identity, identity, encoding, **options)[0, :, 0]


def stick_breaking(scores, attend_current):
    encoding = build("stick_breaking", 1, len(scores), attend_current=attend_current)
    return weights_of(scores, encoding)


def sink(scores, sink, how="plain"):
    encoding = build("nope", 1, len(scores), sink=True).replace(logit=np.float32([sink]))
    return weights_of(scores[None], encoding, implementation=how)


def window(length, size):
    encoding = build("nope", 1, length).windowed(size)
    return weights_of(np.zeros((length, length)), encoding) > 0


def selective_rope(x, heads, w1, w2, convolution, base):
    rank, _, pairs = w2.shape
    dims = Dims(heads, 2 * pairs, x.shape[1], 64)
    encoding = posenc_jax.build("selective_rope", dims, KEY, rank=rank, base=base)
    encoding = encoding.replace(w1=w1, w2=w2, convolution=convolution)
    features = call(encoding, "read", x[None])
    return (features["sum"] + features["rest"])[0] * encoding.inv_freq[None, None]


def attended(q, k, v, encoding, how="auto", **options):
    q, k, v = (jnp.asarray(x)[None] for x in (q, k, v))
    return compiled(q, k, v, encoding, implementation=how, **options)[0]


def pope(q, k, v, bias, base, how="plain"):
    encoding = build("pope", *q.shape[1:], base=base).replace(shift=jnp.asarray(bias))
    return attended(q, k, v, encoding, how)


def fope(q, k, v, cosines, sines, train_length, base, how="plain"):
    encoding = build("fope", *q.shape[1:], train_length=train_length, base=base)
    encoding = encoding.replace(cosines=jnp.asarray(cosines), sines=jnp.asarray(sines))
    return attended(q, k, v, encoding, how)


def rope_imaginary(q, k, v, base, how="plain"):
    return attended(q, k, v, build("rope", *q.shape[1:], base=base, imaginary=True), how)


def retention(q, k, v, rotate, quadratic=False):
    places = jnp.arange(len(q))
    given = {"q_positions": places, "k_positions": places} if quadratic else {}
    return attended(q, k, v, build("retention", *q.shape[1:], rotate=rotate), **given)


def topk(q, k, v, k_largest, base):
    encoding = build("rope", *q.shape[1:], base=base)
    return attended(q, k, v, posenc_jax.extend("topk", encoding, 1.0, k=k_largest))


def mla(x, heads, rotary_dim, train_length, base, scale, beta_fast, beta_slow, **weights):
    dims = replace(latents.DIMS, heads=heads, rotary_dim=rotary_dim, train_length=train_length)
    encoding = posenc_jax.build("rope", dims, base=base, layout="interleaved")
    betas = {"beta_fast": beta_fast, "beta_slow": beta_slow}
    return latents.outputs(posenc_jax.extend("yarn", encoding, scale, **betas), x, weights)


def distance(name):
    def table(length, train_length=16, **options):
        return extensions.distances(name, length, train_length, **options)

    return table


def dca(length, train_length):
    rope = build("rope", train_length=train_length)
    extended = posenc_jax.extend("dca", rope, length / train_length)
    return extensions.distances("dca", length, train_length), extended.inner.gain**2


def logn(positions, train_length):
    encoding = posenc_jax.extend("logn", build("nope", train_length=train_length), 1.0)
    return call(encoding, "query_scale", positions)


def ssmax(positions, s, b):
    encoding = build("ssmax", len(s), bias=b is not None).replace(scale=s, shift=b)
    return call(encoding, "query_scale", positions)[0]


def query_scale(positions, kind, train_length, a):
    return schemes.ssmax.temperature(kind, jnp.asarray(positions), train_length, a)


DISTANCES = "rerope leaky_rerope self_extend lm_infinite streaming"
ROTARY = "pi ntk ntk_by_parts yarn llama3 longrope dynamic_pi dynamic_ntk dynamic_yarn"
OURS = {
    **{name: rotary(name) for name in (*ROTARY.split(), "stepped_ntk", "stepped_yarn")},
    **{name: longer(name) for name in ("interpolate", "clamp")},
    **{name: distance(name) for name in DISTANCES.split()},
    "alibi_slopes": schemes.alibi.slopes,
    "t5_bucket": jax.jit(schemes.t5.bucket, static_argnums=(1, 2)),
    "fox": jax.jit(schemes.fox.bias),
    "cope": jax.jit(schemes.cope.bias),
    "dape": schemes.dape.mix,
    **{
        function.__name__: function
        for function in (
            abf, alibi, configuration, dca, drop, fire, fope, kerple_log, kerple_power, logn, mla,
            pope, query_scale, relative, retention, rope, rope_imaginary, sandwich,
            selective_rope, sink, sinusoidal, ssmax, stale, stick_breaking, topk, window, xpos,
        )
    },
}  # fmt: skip
REFUSED = ("Laguna", "truncate=false for a kind", "Gemma-4", "InternLM2.5", "Hunyuan")
BY_OTHER_PATHS = [
    ("yarn", {"fraction": 0.5}),
    ("llama3", {"fraction": 0.5}),
    ("drop", {"built": True}),
    ("relative", {"contiguous": False}),
    ("sink", {"how": "blockwise"}),
    ("pope", {"how": "blockwise"}),
    ("fope", {"how": "blockwise"}),
    ("rope_imaginary", {"how": "blockwise"}),
    ("retention", {"quadratic": True}),
]


@pytest.mark.parametrize(
    ("name", "options"), [*((name, {}) for name in checking.names()), *BY_OTHER_PATHS], ids=str
)
def test_our_functions_return_the_published_values(name, options):
    """Within a tenth of the tolerance that others have; nothing is skipped but what is refused."""
    results = check(load(name), functools.partial(OURS[name], **options))
    assert not any(result.failure or result.convention for result in results)
    assert all(result.case.name.startswith(REFUSED) for result in results if result.skipped)
    assert max(result.excess for result in results) < 0.1


def test_every_encoding_and_extension_has_a_subject():
    """But for those that a page names, as they have no formula of their own."""
    names = committed(schemes.names(), "posenc_jax", "schemes")
    names += committed(extensions.records(), "posenc_jax", "extensions")
    without = {"nope", "none", "temperature", "learned", "hybrid", "plus", "randomized"}
    assert {"t5_bucket" if name == "t5" else name for name in names} - without <= set(OURS)


def test_the_page_lists_every_subject_and_counts_their_cases():
    page = (ROOT / "conformance" / "README.md").read_text()
    subjects = [load(name) for name in checking.names()]
    assert all(f"`{subject.name}`" in page for subject in subjects)
    cases = sum(len(subject.cases) for subject in subjects)
    assert f"{len(subjects)} subjects and {cases} cases" in page


# The suite itself


@pytest.mark.parametrize("name", checking.names())
def test_outputs_are_those_of_the_reference(name):
    path = checking.VALUES / f"{name}.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    made = json.loads(published.text(published.completed(name, stored)))
    assert path.read_text(encoding="utf-8") == published.text(stored)  # its layout
    exact = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12, strict=True)
    for case, again in zip(stored["cases"], made["cases"], strict=True):
        groups = [
            [each.pop("outputs"), *each.pop("conventions", {}).values()] for each in (again, case)
        ]
        for pair in zip(*groups, strict=True):
            for new, old in zip(*(group.values() for group in pair), strict=True):
                exact(np.float64(new), np.float64(old))
    assert stored == made


def test_the_suite_imports_numpy_alone():
    allowed = {"conformance", "numpy", *sys.stdlib_module_names}
    for path in (ROOT / "conformance").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert {name.partition(".")[0] for name in names} <= allowed
