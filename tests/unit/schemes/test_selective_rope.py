"""Selective RoPE: RoPE as a special case, steps by hand, documents, pieces and exact sums."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attending import B, H, K, content, mixed, qkv, scores_of, turned, visible
from sizes import DIMS, L

import posenc_jax
from posenc_jax.attention import attend
from posenc_jax.encoding import Dims

pytestmark = pytest.mark.sampled

KEY = jax.random.key(0)


def build(dims=DIMS, **options):
    return posenc_jax.build("selective_rope", dims, KEY, **options)


@jax.jit
def read(encoding, x, before=None, document=None):
    return encoding.read(x, before, document)


def steps_by_hand(encoding, x):  # [B, T, D] -> [B, T, H, K/2] in float64
    x = np.asarray(x, np.float64).reshape(*x.shape[:2], H, -1)
    x = (x / np.sqrt((x**2).sum(-1, keepdims=True) + 1e-6)).reshape(*x.shape[:2], -1)
    phi = np.einsum("btr,rhp->bthp", x @ np.float64(encoding.w1), np.float64(encoding.w2))
    steps = np.zeros_like(phi)
    for back, weights in enumerate(np.float64(encoding.convolution)):
        steps[:, back:] += phi[:, : phi.shape[1] - back] * weights
    if encoding.beta is not None:
        steps += np.exp(np.float64(encoding.beta))
    if encoding.gate_kernel is not None:
        gate = x @ np.float64(encoding.gate_kernel) + np.float64(encoding.gate_shift)
        steps *= 1 / (1 + np.exp(-gate))[..., None]
    return steps


def test_constant_steps_of_one_are_rope():
    encoding = build(bias=True)
    encoding = encoding.replace(w2=jnp.zeros_like(encoding.w2))
    q, k, v = qkv(70, groups=2)
    rope, features = posenc_jax.build("rope", DIMS, base=500_000.0), content(B, 70, DIMS.width)
    out, expected = jax.jit(
        lambda: (
            attend(q, k, v, encoding, window=9, features=read(encoding, features)),
            attend(q, k, v, rope, window=9),
        )
    )()
    np.testing.assert_allclose(out, expected, atol=3e-6)


@pytest.mark.parametrize("options", [{}, {"bias": True}, {"gate": True, "rank": 3}], ids=str)
def test_scores_turn_by_the_steps_between_key_and_query(options):
    encoding, (q, k, v) = build(**options, base=50.0), qkv(40, groups=2)
    # Steps of about one, so that angles matter.
    encoding = encoding.replace(w2=8 * encoding.w2)
    x = content(B, 40, DIMS.width)
    out = jax.jit(lambda: attend(q, k, v, encoding, features=read(encoding, x)))()
    total = np.cumsum(steps_by_hand(encoding, x), axis=1)
    assert total.std() > 0.8
    angle = total * 50.0 ** (-np.arange(0, K, 2) / K)
    scores = scores_of(turned(q, angle), turned(np.repeat(k, 2, axis=2), angle))
    expected = mixed(scores, visible(40, 40), v)
    np.testing.assert_allclose(out, expected, atol=5e-6)


def test_steps_do_not_cross_documents():
    """Each document has the steps that it has alone, whatever stands before it."""
    encoding, x = build(), content(B, 20, DIMS.width)
    document = jnp.asarray([[1] * 7 + [2] * 2 + [3] * 11, [1] * 19 + [2]])
    packed = read(encoding, x, None, document)
    total = np.asarray(packed["sum"] + packed["rest"])
    for row, first, last in ((0, 0, 7), (0, 7, 9), (0, 9, 20), (1, 0, 19), (1, 19, 20)):
        alone = steps_by_hand(encoding, x[row : row + 1, first:last])[0]
        inside = np.diff(total[row, first:last], axis=0)
        np.testing.assert_allclose(inside, alone[1:], atol=1e-6)


def test_random_steps_are_those_of_the_place_in_the_document():
    encoding, x = build(steps="random", seed=3), content(B, 20, DIMS.width)
    document = jnp.asarray([[1] * 7 + [2] * 13, [1] * 20])
    whole, packed = read(encoding, x), read(encoding, x, None, document)
    steps = np.diff(np.asarray(whole["sum"] + whole["rest"]), axis=1, prepend=0)
    np.testing.assert_array_equal(steps[0], steps[1])
    inside = np.diff(np.asarray(packed["sum"] + packed["rest"]), axis=1, prepend=0)
    np.testing.assert_allclose(inside[0], np.concatenate([steps[0, :7], steps[0, :13]]), atol=1e-5)
    before, pieces = None, []
    for piece in (slice(0, 4), slice(4, 5), slice(5, 20)):
        pieces.append(read(encoding, x[:, piece], before, document[:, piece]))
        before = jax.tree.map(lambda leaf: leaf[:, -1:], pieces[-1])
    joined = jnp.concatenate([piece["sum"] + piece["rest"] for piece in pieces], axis=1)
    np.testing.assert_allclose(joined, packed["sum"] + packed["rest"], atol=1e-5)
    far = read(build(Dims(H, K, DIMS.width, L), steps="random"), content(1, 4_000, DIMS.width))
    drawn = np.diff(np.asarray(far["sum"] + far["rest"])[0], axis=0).ravel()
    assert abs(drawn.mean()) < 0.02 and abs(drawn.std() - 1) < 0.02
    assert not np.allclose(steps[0], np.asarray(far["sum"])[0, :20])  # another seed
    with pytest.raises(ValueError, match="gate has no effect with steps='random'"):
        build(steps="random", gate=True)
    with pytest.raises(ValueError, match="seed has no effect with steps='learned'"):
        build(seed=1)


def test_angles_are_exact_after_many_tokens():
    """After 20,000 steps of about one a float32 sum alone would be off by up to 1e-3."""
    encoding = build(Dims(H, K, DIMS.width, L), bias=True)
    x = content(1, 20_000, DIMS.width)
    features = read(encoding, x)
    cos, sin = encoding._cos_sin(jax.tree.map(lambda leaf: leaf[:, -50:], features))
    total = np.cumsum(steps_by_hand(encoding, x), axis=1)[:, -50:]
    angle = (total * np.float64(encoding.inv_freq)).swapaxes(1, 2)
    assert total.max() > 10_000
    np.testing.assert_allclose(cos, np.cos(angle), atol=5e-5)
    np.testing.assert_allclose(sin, np.sin(angle), atol=5e-5)
