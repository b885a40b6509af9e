"""Other libraries against the published values, as rows of README.md's table.

    python -m conformance.peers LIBRARY ...

A library must be importable; a module of it is imported without the packages around it, so that
it needs no more than its own imports.
"""

import importlib
import importlib.metadata
import sys
from importlib.machinery import PathFinder
from types import ModuleType, SimpleNamespace

import numpy as np

from conformance import checking, mistakes


def alone(name: str) -> ModuleType:
    """Import a module without running the __init__.py of the packages around it."""
    path = None
    parts = name.split(".")
    for count in range(1, len(parts)):
        package = ".".join(parts[:count])
        spec = PathFinder.find_spec(package, path)
        if spec is None or spec.submodule_search_locations is None:
            raise ImportError(f"no package {package!r}")
        path = list(spec.submodule_search_locations)
        if package not in sys.modules:
            sys.modules[package] = ModuleType(package)
            sys.modules[package].__path__ = path
    return importlib.import_module(name)


def measured(rotate, head_dim):
    """Frequencies and factor of a rotation of [1, 2, 1, K] at positions 0 and 1, layout half."""
    x = np.repeat(np.float32([1, 0]), head_dim // 2).reshape(1, 1, 1, -1).repeat(2, axis=1)
    out = np.asarray(rotate(x), np.float64)[0, 1, 0]
    cos, sin = np.split(out, 2)
    return np.arctan2(sin, cos), np.hypot(cos, sin)[0]


def transformers():
    import torch
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor
    from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
    from transformers.models.ministral3.modeling_ministral3 import get_llama_4_attn_scale
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
    from transformers.models.t5.modeling_t5 import T5Attention

    def config_of(head_dim, base, length, **parameters):
        return LlamaConfig(
            hidden_size=head_dim,
            num_attention_heads=1,
            max_position_embeddings=length,
            rope_parameters={"rope_theta": base, **parameters},
        )

    def scaled(kind, head_dim, base, length, read=None, **parameters):
        config = config_of(head_dim, base, length, rope_type=kind, **parameters)
        return ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=read)

    def extended(kind, head_dim, base, train_length, scale, read=None, **parameters):
        parameters |= {"factor": scale, "original_max_position_embeddings": train_length}
        return scaled(kind, head_dim, base, int(train_length * scale), read, **parameters)

    def pi(head_dim, base, scale):
        return scaled("linear", head_dim, base, 64, factor=scale)

    def dynamic_ntk(head_dim, base, train_length, length):
        return scaled("dynamic", head_dim, base, train_length, length, factor=1.0)

    def yarn(head_dim, base, train_length, scale, beta_fast, beta_slow, truncate, attention_factor):
        options = {"beta_fast": beta_fast, "beta_slow": beta_slow, "truncate": truncate}
        options["attention_factor"] = attention_factor
        return extended("yarn", head_dim, base, train_length, scale, **options)

    def llama3(head_dim, base, train_length, scale, low, high):
        options = {"low_freq_factor": low, "high_freq_factor": high}
        return extended("llama3", head_dim, base, train_length, scale, **options)

    def longrope(head_dim, base, train_length, scale, lambdas, attention_factor, short, length):
        options = {"short_factor": (lambdas if short is None else short).tolist()}
        options |= {"long_factor": lambdas.tolist(), "attention_factor": attention_factor}
        return extended("longrope", head_dim, base, train_length, scale, length, **options)

    def drop(head_dim, base, train_length, keep):
        if keep == "turned":
            raise NotImplementedError("shares alone")
        return scaled("proportional", head_dim, base, 64, partial_rotary_factor=keep)[0]

    def rope(x, positions, base, fraction, layout):
        if layout == "interleaved" or fraction < 1:
            raise NotImplementedError("whole heads in layout half")
        rotary = LlamaRotaryEmbedding(config_of(x.shape[-1], base, 64, rope_type="default"))
        x = torch.from_numpy(x).transpose(0, 1)[None]
        turned = apply_rotary_pos_emb(x, x, *rotary(x, torch.from_numpy(positions)[None]))
        return turned[0][0].transpose(0, 1)

    def t5_bucket(distance, num_buckets, max_distance):
        return T5Attention._relative_position_bucket(
            -torch.from_numpy(distance), False, num_buckets, max_distance
        )

    def bloom_slopes(heads):
        return build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]

    def mpt_slopes(heads):
        return -build_mpt_alibi_tensor(heads, 2)[:, 0, 0]

    def query_scale(positions, kind, train_length, a):
        if kind != "ministral3":
            raise NotImplementedError("ministral3 alone")
        scale = get_llama_4_attn_scale(torch.from_numpy(positions)[None], a, train_length)
        return scale[0, 0, :, 0]

    def sink(scores, sink):
        module = SimpleNamespace(num_key_value_groups=1, sinks=torch.tensor([sink]), training=False)
        keys = torch.from_numpy(scores)[None, None, :, None]
        query = torch.ones(1, 1, 1, 1)
        return eager_attention_forward(module, query, keys, keys, None, 1.0)[1][0, 0, 0]

    return {
        "pi": pi,
        "dynamic_ntk": dynamic_ntk,
        "yarn": yarn,
        "llama3": llama3,
        "longrope": longrope,
        "drop": drop,
        "rope": rope,
        "t5_bucket": t5_bucket,
        "alibi_slopes (BLOOM)": bloom_slopes,
        "alibi_slopes (MPT)": mpt_slopes,
        "query_scale": query_scale,
        "sink": sink,
    }


def x_transformers():
    import torch
    from x_transformers import x_transformers as theirs

    def pi(head_dim, base, scale):
        rotary = theirs.RotaryEmbedding(head_dim, base=base, interpolation_factor=scale)
        return rotary(torch.tensor([1.0]))[0][0, 0, ::2]

    def ntk(head_dim, base, scale):
        return theirs.RotaryEmbedding(head_dim, base=base, base_rescale_factor=scale).inv_freq

    def rope(x, positions, base, fraction, layout):
        if layout == "half":
            raise NotImplementedError("layout interleaved alone")
        rotary = theirs.RotaryEmbedding(int(fraction * x.shape[-1]), base=base)
        freqs = rotary(torch.from_numpy(positions))[0]
        rows = torch.from_numpy(x).transpose(0, 1)[None]
        return theirs.apply_rotary_pos_emb(rows, freqs)[0].transpose(0, 1)

    def xpos(q, k, positions, base):
        size = q.shape[-1]
        freqs, scale = theirs.RotaryEmbedding(size, use_xpos=True, base=base)(
            torch.from_numpy(positions)
        )
        order = np.arange(size).reshape(2, -1).T.reshape(-1)  # its pairs are neighbours
        q, k = (torch.from_numpy(each[..., order]).transpose(0, 1)[None] for each in (q, k))
        q = theirs.apply_rotary_pos_emb(q, freqs, scale)
        k = theirs.apply_rotary_pos_emb(k, freqs, scale**-1)
        return (q @ k.transpose(-1, -2))[0] / size**0.5

    def sinusoidal(positions, width):
        if width % 2:
            raise NotImplementedError("even widths alone")
        embedding = theirs.ScaledSinusoidalEmbedding(width)
        embedding.scale.data.fill_(1.0)
        return embedding(torch.empty(1, len(positions)), pos=torch.from_numpy(positions).float())

    def t5_bucket(distance, num_buckets, max_distance):
        return theirs.RelativePositionBias._relative_position_bucket(
            -torch.from_numpy(distance), True, num_buckets, max_distance
        )

    def cope(scores, q_dot_e):
        length, positions = q_dot_e.shape
        cope = theirs.CoPE(dim=positions, heads=1, max_pos=positions)
        cope.pos_emb.data = torch.eye(positions)
        logits = torch.from_numpy(scores).masked_fill(
            ~torch.ones(length, length).tril().bool(), -1e9
        )
        return cope(torch.from_numpy(q_dot_e)[None, None], logits[None, None])[0, 0]

    def fox(gate_logits):
        gates = theirs.DataDependentAlibi(dim=1, heads=1, bias_init=0.0)
        gates.to_forget_gates[0].weight.data.fill_(1.0)
        return gates(torch.from_numpy(gate_logits)[None, :, None])[0, 0]

    def relative(r, profiles):
        rank, extent = profiles.shape
        bias = theirs.RelativeProjPositionalBias(rank, 1, num_distance_basis=rank, max_dist=extent)
        bias.to_distance_weights[0].weight.data = torch.eye(rank)
        bias.to_distance_weights[0].bias.data.zero_()
        bias.distance_bank.data = torch.from_numpy(profiles)
        return bias(torch.from_numpy(r)[None])[0, 0]

    def pope(q, k, v, bias, base):
        length, heads, size = q.shape
        polar = theirs.PolarEmbedding(size, heads, base=base)
        polar.learned_bias.data = torch.from_numpy(bias)[:, None]
        freqs, learned = polar(torch.arange(length))
        q, k, v = (torch.from_numpy(each).transpose(0, 1)[None] for each in (q, k, v))
        q, k = theirs.apply_polar_pos_emb(q, freqs), theirs.apply_polar_pos_emb(k, freqs + learned)
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=size**-0.5
        )
        return out[0].transpose(0, 1)

    return {
        "pi": pi,
        "ntk": ntk,
        "rope": rope,
        "xpos": xpos,
        "sinusoidal": sinusoidal,
        "alibi_slopes": theirs.AlibiPositionalBias._get_slopes,
        "alibi": lambda heads, length: theirs.AlibiPositionalBias(heads)(length, length),
        "t5_bucket": t5_bucket,
        "cope": cope,
        "fox": fox,
        "relative": relative,
        "pope": pope,
    }


def maxtext():
    import jax.numpy as jnp

    embeddings = alone("maxtext.layers.embeddings")
    fixed = {"mesh": None, "cast_as_fprop_dtype": False}

    def yarn(head_dim, base, train_length, scale, beta_fast, beta_slow, truncate):
        rotary = embeddings.YarnRotaryEmbedding(
            head_dim,
            max_position_embeddings=2,
            original_max_position_embeddings=train_length,
            beta_fast=beta_fast,
            beta_slow=beta_slow,
            rope_theta=base,
            rope_factor=scale,
            interleave=False,
            truncate=truncate,
            attention_scaling=True,
            **fixed,
        )
        return measured(rotary, head_dim)

    def pi(head_dim, base, scale):
        rotary = embeddings.RotaryEmbedding(
            1, base, embedding_dims=head_dim, rope_linear_scaling_factor=scale, **fixed
        )
        return 1 / rotary.timescale

    def rope(x, positions, base, fraction, layout):
        if fraction < 1:
            raise NotImplementedError("whole heads alone")
        kind = {"half": "RotaryEmbedding", "interleaved": "LLaMARotaryEmbedding"}[layout]
        options = {} if layout == "half" else {"use_scale": False}
        rotary = getattr(embeddings, kind)(1, base, embedding_dims=x.shape[-1], **options, **fixed)
        return rotary(jnp.asarray(x)[None], jnp.asarray(positions)[None])[0]

    def llama3(head_dim, base, train_length, scale, low, high):
        if (train_length, scale, low, high) != (8192, 8, 1, 4):
            raise NotImplementedError("the constants of Llama 3.1 alone")
        rotary = embeddings.LLaMARotaryEmbedding(1, base, embedding_dims=head_dim, **fixed)
        return 1 / rotary.timescale[..., ::2]

    def drop(head_dim, base, train_length, keep):
        if keep == "turned":
            raise NotImplementedError("shares alone")
        rotary = embeddings.Gemma4PartialRotaryEmbedding(
            1, base, embedding_dims=head_dim, partial_rotary_factor=keep, **fixed
        )
        return 1 / rotary.timescale

    def sinusoidal(positions, width):
        if width % 2:
            raise NotImplementedError("even widths alone")
        return embeddings.PositionalEmbedding(width)(len(positions), jnp.asarray(positions))

    return {
        "yarn": yarn,
        "pi": pi,
        "rope": rope,
        "llama3": llama3,
        "drop": drop,
        "sinusoidal": sinusoidal,
    }


def levanter():
    import haliax

    rotary = alone("levanter.layers.rotary")

    def rotate(config, x, positions):
        head = haliax.Axis("head_size", x.shape[-1])
        row, heads = haliax.Axis("position", x.shape[0]), haliax.Axis("heads", x.shape[1])
        named = haliax.named(x, (row, heads, head))
        return (
            config.build(head)(named, haliax.named(positions, row))
            .rearrange((row, heads, head))
            .array
        )

    def of(config, head_dim):
        positions = np.arange(2, dtype=np.int32)
        return measured(lambda x: rotate(config, x[0], positions)[None], head_dim)

    def yarn(head_dim, base, train_length, scale, beta_fast, beta_slow):
        return of(
            rotary.YarnRotaryEmbeddingsConfig(
                theta=base,
                factor=scale,
                beta_fast=beta_fast,
                beta_slow=beta_slow,
                original_max_position_embeddings=train_length,
            ),
            head_dim,
        )

    def pi(head_dim, base, scale):
        return of(rotary.DefaultRotaryEmbeddingsConfig(theta=base, factor=scale), head_dim)[0]

    def llama3(head_dim, base, train_length, scale, low, high):
        return of(
            rotary.Llama3RotaryEmbeddingsConfig(
                theta=base,
                factor=scale,
                low_freq_factor=low,
                high_freq_factor=high,
                original_max_position_embeddings=train_length,
            ),
            head_dim,
        )[0]

    def rope(x, positions, base, fraction, layout):
        if layout == "interleaved" or fraction < 1:
            raise NotImplementedError("whole heads in layout half")
        return rotate(rotary.DefaultRotaryEmbeddingsConfig(theta=base), x, positions)

    return {"yarn": yarn, "pi": pi, "llama3": llama3, "rope": rope}


def torchtitan():
    import torch

    ropes = alone("torchtitan.models.common.rope")

    def frequencies(head_dim, base, **options):
        config = ropes.ComplexRoPE.Config(dim=head_dim, max_seq_len=2, theta=base, **options)
        return ropes.ComplexRoPE(config).cache[1].angle()

    def yarn(head_dim, base, train_length, scale, beta_fast, beta_slow, truncate):
        return frequencies(
            head_dim,
            base,
            scaling="yarn",
            rope_factor=scale,
            beta_fast=beta_fast,
            beta_slow=beta_slow,
            original_seq_len=train_length,
            truncate=truncate,
        )

    def llama3(head_dim, base, train_length, scale, low, high):
        return frequencies(
            head_dim,
            base,
            scaling="llama",
            scaling_factor=scale,
            low_freq_factor=low,
            high_freq_factor=high,
            original_max_position_embeddings=train_length,
        )

    def rope(x, positions, base, fraction, layout):
        if fraction < 1:
            raise NotImplementedError("whole heads alone")
        kind = {"half": ropes.CosSinRoPE, "interleaved": ropes.ComplexRoPE}[layout]
        config = kind.Config(dim=x.shape[-1], max_seq_len=int(positions.max()) + 1, theta=base)
        rows, places = torch.from_numpy(x)[None], torch.from_numpy(positions)[None]
        return kind(config)(rows, rows, places)[0][0]

    return {"yarn": yarn, "llama3": llama3, "rope": rope}


PEERS = {
    "transformers": transformers,
    "x-transformers": x_transformers,
    "maxtext": maxtext,
    "levanter": levanter,
    "torchtitan": torchtitan,
}


def rows(library: str):
    """Yield a row for each subject that a library has: cases passed, worst error, differences."""
    version = importlib.metadata.version(library)
    for label, function in PEERS[library]().items():
        subject = checking.load(label.partition(" ")[0])
        results = [r for r in checking.check(subject, function) if not r.skipped]
        failed = [result for result in results if not result.passes]
        passed = f"{len(results) - len(failed)} of {len(results)}"
        worst = max(result.error for result in results)
        notes = [
            f"{name} not returned"
            for name in subject.cases[0].outputs
            if name not in results[0].got
        ]
        notes += [r.failure or r.case.name for r in failed][:1]
        notes += mistakes.explain(subject.name, failed) if failed else []
        yield f"| {library} {version} | {label} | {passed} | {worst:.0e} | {'; '.join(notes)} |"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for row in rows(name):
            print(row)
