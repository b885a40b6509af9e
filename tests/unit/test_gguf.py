"""A GGUF file holds the model of a folder in other names, layouts and types."""

import gguf
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from llamas import LAYERS, LLAMA, D, F, G, H, K, L, V, drawn, logits, write

import posenc_jax
from models.transformer import make_norm
from posenc_jax import pretrained
from posenc_jax.data import tokenizer
from posenc_jax.pretrained import sources
from posenc_jax.pretrained.adopt import adopt, read
from posenc_jax.runtime.errors import ConfigError, DataError, Stop

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_up_proj": "ffn_up",
}
GEMMA_NAMES = NAMES | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
}
CHARACTERS = tokenizer.train_bpe(["a"], 256).get_vocab()


def interleaved(rows, heads):
    """Halves [H, 2, K/2] as pairs [H, K/2, 2], as converters to the architecture llama write."""
    halves = rows.reshape(heads, 2, -1, rows.shape[-1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows.shape)


def write_gguf(
    path,
    kind="llama",
    quantised=None,
    pre="smollm",
    scaling=None,
    lacking=(),
    edit=None,
    add_bos=False,
    arrays=None,
    layers=LAYERS,
    base=5000.0,
):
    writer = gguf.GGUFWriter(path, kind)
    writer.add_block_count(layers)
    writer.add_context_length(L)
    writer.add_embedding_length(D)
    writer.add_feed_forward_length(F)
    writer.add_head_count(H)
    writer.add_head_count_kv(G)
    writer.add_key_length(K)
    writer.add_rope_dimension_count(K)
    if base:
        writer.add_rope_freq_base(base)
    writer.add_layer_norm_rms_eps(1e-5)
    if scaling:
        writer.add_rope_scaling_type(gguf.RopeScalingType(scaling))
        writer.add_rope_scaling_factor(4.0)
    if edit:
        edit(writer)
    characters = sorted(c for c in CHARACTERS if c not in lacking)
    merges = ["1 2", "Ġ a", "Ċ Ċ", "ĊĊ 1"]
    words = [*(merge.replace(" ", "") for merge in merges), "cab"]  # which merges do not reach
    others = V - len(characters) - len(words) - 1
    tokens = ["<|im_start|>", *characters, *words, *(f"<{i}>" for i in range(others))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3, *[1] * (len(tokens) - 1 - others), *[3] * others])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    if add_bos is not None:
        writer.add_add_bos_token(add_bos)
    names = GEMMA_NAMES if kind.startswith("gemma") else NAMES
    for name, array in (arrays or drawn()).items():
        module = name.removesuffix(".weight")
        layer, inner = (module.split(".", 3)[2:]) if ".layers." in module else (None, module)
        place = f"blk.{layer}.{names[inner]}" if layer else names[inner]
        array = array + 1 if kind.startswith("gemma") and array.ndim == 1 else array
        if kind == "llama" and inner in ("self_attn.q_proj", "self_attn.k_proj"):
            array = interleaved(array, H if inner.endswith("q_proj") else G)
        if quantised is None or array.ndim == 1:
            writer.add_tensor(f"{place}.weight", array)
        else:
            raw = gguf.quantize(array, quantised)
            writer.add_tensor(f"{place}.weight", raw, raw_dtype=quantised)
    for layer in range(LAYERS if kind == "qwen3" else 0):
        for name in "qk":
            writer.add_tensor(f"blk.{layer}.attn_{name}_norm.weight", np.ones(K, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_architecture_qwen3_is_not_interleaved(tmp_path):
    params = read(write_gguf(tmp_path / "qwen3.gguf", "qwen3")).params["model"]
    for name in "qk":
        theirs = drawn()[f"model.layers.1.self_attn.{name}_proj.weight"]
        np.testing.assert_array_equal(params[f"blocks.attention.{name}.kernel"][1].T, theirs)
    assert params["blocks.attention.q_norm.scale"].shape == (LAYERS, K)


@pytest.mark.parametrize("kind", ["F16", "BF16"])
def test_types_of_two_bytes_are_held_as_they_are(kind, tmp_path):
    quantised = getattr(gguf.GGMLQuantizationType, kind)
    adopted = read(write_gguf(tmp_path / "model.gguf", quantised=quantised))
    model = adopted.params["model"]
    dtype = np.float16 if kind == "F16" else ml_dtypes.bfloat16
    up, theirs = model["blocks.mlp.up.kernel"], drawn()["model.layers.1.mlp.up_proj.weight"]
    assert adopted.facts["weights"] == f"{np.dtype(dtype)}+float32"  # not quantised
    assert up.dtype == dtype and model["norm.scale"].dtype == np.float32
    np.testing.assert_array_equal(up[1].T, theirs.astype(dtype))


def test_matrices_are_held_as_bfloat16_on_request(tmp_path):
    held, whole = (
        read(write_gguf(tmp_path / "model.gguf"), weights=weights).params["model"]
        for weights in ("bfloat16", None)
    )
    for name, array in whole.items():
        expected = array if name.endswith("scale") else array.astype(ml_dtypes.bfloat16)
        assert held[name].dtype == expected.dtype
        np.testing.assert_array_equal(held[name], expected)


@pytest.mark.parametrize(
    "options",
    [
        {"scaling": "linear"},
        {"edit": lambda writer: writer.add_rope_scaling_factor(4.0)},
        {"edit": lambda writer: writer.add_float32("llama.rope.scale_linear", 4.0)},
    ],
)
def test_a_linear_rope_scaling_is_position_interpolation(options, tmp_path):
    plain, scaled = (
        pretrained.load(write_gguf(tmp_path / "model.gguf", **given)).encoding
        for given in ({}, options)
    )
    np.testing.assert_allclose(scaled.inv_freq, plain.inv_freq / 4, rtol=1e-6)


def test_yarn_is_that_of_the_folder(tmp_path):
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": L // 2}
    yarn |= {"beta_fast": 0.5, "beta_slow": 0.1}

    def edit(writer):
        writer.add_rope_scaling_orig_ctx_len(L // 2)
        writer.add_rope_scaling_yarn_beta_fast(0.5)
        writer.add_rope_scaling_yarn_beta_slow(0.1)

    file = pretrained.load(write_gguf(tmp_path / "a.gguf", scaling="yarn", edit=edit))
    folder = pretrained.load(write(tmp_path / "a", config=LLAMA | {"rope_parameters": yarn}))
    assert file.facts["L"] == folder.facts["L"] == L // 2
    np.testing.assert_array_equal(logits(file), logits(folder))
    usual = {name: value for name, value in yarn.items() if "beta" not in name}
    other = pretrained.load(write(tmp_path / "b", config=LLAMA | {"rope_parameters": usual}))
    assert np.abs(logits(other) - logits(file)).max() > 1e-3


def test_the_factors_of_llama3_tell_its_original_length(tmp_path):
    settings = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    llama3 = settings | {"rope_type": "llama3", "original_max_position_embeddings": 16}
    folder = pretrained.load(write(tmp_path / "a", config=LLAMA | {"rope_parameters": llama3}))
    fastness = (16 / (2 * np.pi) - 1) / 3  # of the first pair, which turns 2.5 times in 16
    factors = [1 / ((1 - fastness) / 4 + fastness), 4.0, 4.0]

    def written(name, values):
        def edit(writer):
            writer.add_tensor("rope_freqs.weight", np.asarray(values, np.float32))

        return write_gguf(tmp_path / name, edit=edit)

    file = pretrained.load(written("a.gguf", factors))
    assert (file.facts["rope_type"], file.facts["L"]) == ("llama3", 16)
    np.testing.assert_array_equal(logits(file), logits(folder))
    for values in ([2.0, 3.0, 4.0], [1.0, 1.0, 1.0], [4.0, 4.0, 4.0]):
        with pytest.raises(ConfigError, match="not those of Llama 3's rule"):
            read(written("b.gguf", values))


def stated(name, value):
    return {"edit": lambda writer: writer.add_float32(f"llama.{name}", value)}


ANY_ORDER = {"edit": lambda writer: writer.add_causal_attention(False)}
YARN = {"scaling": "yarn"}  # whose gains have two meanings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "gemma"}, "architecture 'gemma' is not supported"),
        ({"pre": "deepseek-v9"}, "pre-tokenizer 'deepseek-v9' is not supported"),
        (stated("attn_logit_softcapping", 3e1), r"a soft cap on logits of attention \(attn_logit"),
        (stated("final_logit_softcapping", 3e1), r"a soft cap on logits \(final_logit_softcapping"),
        (ANY_ORDER, "attention.causal = False is not supported, only True"),
        ({"kind": "gemma3", "base": None}, "rope.freq_base is missing"),
        *(
            (YARN | stated(f"rope.scaling.{name}", 1.2), f"rope.scaling.{name} is not supported")
            for name in ("attn_factor", "yarn_attn_factor", "yarn_ext_factor")
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_has_no_form_here_is_refused(options, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        read(write_gguf(tmp_path / "model.gguf", **options))


def test_an_unknown_architecture_is_refused_before_the_tokens_are_read(tmp_path, monkeypatch):
    def edit(writer):
        (keys,) = writer.kv_data
        keys[sources.ARCHITECTURE] = keys.pop(sources.ARCHITECTURE)  # not the first of its keys

    monkeypatch.setattr(gguf, "GGUFReader", lambda _: pytest.fail("all of it is read"))
    with pytest.raises(ConfigError, match="architecture 'gemma' is not supported"):
        read(write_gguf(tmp_path / "model.gguf", "gemma", edit=edit))


def test_layers_of_two_types_name_the_option_that_makes_them_alike(tmp_path):
    name = "model.layers.1.mlp.down_proj.weight"
    arrays = drawn() | {name: drawn()[name].astype(np.float16)}
    path = write_gguf(tmp_path / "model.gguf", arrays=arrays)
    with pytest.raises(DataError, match=f"{name}: its type is float16, .*; --weights=bfloat16"):
        read(path)
    down = read(path, weights="bfloat16").params["model"]["blocks.mlp.down.kernel"]
    np.testing.assert_array_equal(down[1].T, arrays[name].astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize(
    ("pre", "numbers", "word"),
    [
        ("smollm", ["ĊĊ", "1", "2", "Ġa"], ["c", "a", "b"]),  # digits are alone
        ("gpt-2", ["Ċ", "Ċ", "12", "Ġa"], ["c", "a", "b"]),
        ("llama-bpe", ["ĊĊ", "12", "Ġa"], ["cab"]),  # words that are tokens are not merged
        ("qwen2", ["ĊĊ", "1", "2", "Ġa"], ["c", "a", "b"]),
    ],
)
def test_the_pre_tokenizer_is_the_one_that_the_file_names(pre, numbers, word, tmp_path):
    encoder = read(write_gguf(tmp_path / "model.gguf", pre=pre)).tokenizer
    for text, expected in (("\n\n12 a", numbers), ("cab", word)):
        tokens = encoder.encode(text)
        assert [encoder.tokenizer.id_to_token(int(token)) for token in tokens] == expected


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (False, ["ab", "\u2581", "ba", "  ", "b", "<0xC3>", "<0xA9>"]),
        (True, ["\u2581a", "b", "\u2581", "ba", "  ", "\u2581", "b", "<0xC3>", "<0xA9>"]),
    ],
)
def test_pieces_are_merged_by_score_and_unknown_characters_are_bytes(space, expected, tmp_path):
    pieces = {"<s>": (-9.0, 3), "  ": (-9.0, 4), "\u2581": (-5.0, 1)}
    pieces |= {"a": (-6.0, 1), "b": (-7.0, 1)}  # scores and types
    pieces |= {f"<0x{byte:02X}>": (-9.0, 6) for byte in range(256)}
    pieces |= {"\u2581a": (0.0, 1), "ba": (-1.0, 1), "ab": (-2.0, 1)}
    scores, types = zip(*pieces.values(), strict=True)
    facts = {
        "tokenizer.ggml.model": "llama",
        sources.TOKENS: list(pieces),
        sources.SCORES: list(scores),
        sources.TYPES: list(types),
        sources.SPACE: space,
        sources.BOS_ID: 0,
    }
    encoder, prefix = sources._gguf_tokenizer(facts, tmp_path)
    text = "ab ba  b\u00e9"
    assert [list(pieces)[token] for token in encoder.encode(text)] == expected
    assert encoder.measure(text.encode(), "a text")[1].sum() == len(text.encode())
    assert prefix == 0  # where the file does not say


def test_a_file_that_is_cut_or_lacks_a_key_ends_in_an_error_of_ours(tmp_path):
    path = write_gguf(tmp_path / "model.gguf")
    whole, data = path.read_bytes(), gguf.GGUFReader(path).data_offset
    for end in [*range(0, data, data // 50), *range(data, len(whole), len(whole) // 20)]:
        path.write_bytes(whole[:end])
        with pytest.raises(Stop):
            read(path)
    path.write_bytes(whole)
    optional = "general bos_token_id add_bos head_count_kv key_length freq_base dimension_count"
    for key in gguf.GGUFReader(path).fields:
        if not key.startswith("GGUF.") and not any(name in key for name in optional.split()):
            path.write_bytes(whole.replace(key.encode(), key[:-1].encode() + b"X"))
            with pytest.raises(ConfigError, match=f"{key.split('.', 1)[1]}|tokenizer|no length"):
                read(path)


@pytest.mark.parametrize("merges", [["1 2 3"], ["1"], [" "], ["1 \u2014"], ["1 3"]])
def test_a_bad_merge_is_an_error_of_the_data(merges, tmp_path, monkeypatch):
    name, write = "add_token_merges", gguf.GGUFWriter.add_token_merges
    monkeypatch.setattr(gguf.GGUFWriter, name, lambda writer, _: write(writer, merges))
    with pytest.raises(DataError, match="cannot read .*model.gguf"):
        read(write_gguf(tmp_path / "model.gguf"))


def test_a_text_without_the_missing_bytes_of_a_vocabulary_needs_no_offsets(tmp_path, monkeypatch):
    lacking = [c for c in CHARACTERS if c in "ÀÁõö÷øùúûüýþÿĄ"]
    encoder = read(write_gguf(tmp_path / "model.gguf", lacking=lacking)).tokenizer
    byte_offsets, slow = tokenizer.byte_offsets, []
    monkeypatch.setattr(tokenizer, "byte_offsets", lambda s: slow.append(s) or byte_offsets(s))
    for text, offsets in (("caf\u00e9 12 \u6771\u4eac", 0), ("a\x04b", 1)):
        tokens, widths = encoder.measure(text.encode(), "a text")
        assert len(tokens) == len(widths) and widths.sum() == len(text.encode())
        assert len(slow) == offsets


def gemma(dtype=np.float32):
    """The arrays of a Gemma 3 whose norms hold their scales without the 1."""
    arrays, rng = drawn(dtype), np.random.default_rng(3)
    del arrays["lm_head.weight"]
    sizes = {"pre_feedforward_layernorm": D, "post_feedforward_layernorm": D}
    sizes |= {"self_attn.q_norm": K, "self_attn.k_norm": K}
    for layer in range(LAYERS):
        for name, size in sizes.items():
            scale = (0.3 * rng.normal(size=size)).astype(dtype)
            arrays[f"model.layers.{layer}.{name}.weight"] = scale
    return arrays


GEMMA = LLAMA | {
    "model_type": "gemma3_text",
    "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 8,
    "sliding_window_pattern": 2,
    "query_pre_attn_scalar": K,
    "rope_local_base_freq": 300.0,
    "tie_word_embeddings": True,
}


SIZES = {
    "embedding_length": D,
    "attention.head_count": H,
    "attention.key_length": K,
    "feed_forward_length": F,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.freq_base": 1e4,
}


def gemma_file(path, of_pattern=True, **options):
    def edit(writer):
        writer.add_sliding_window(8)
        if of_pattern:
            writer.add_uint32("gemma3.attention.sliding_window_pattern", 2)
            writer.add_float32("gemma3.rope.freq_base_swa", 300.0)

    return write_gguf(path, "gemma3", edit=edit, arrays=gemma(), **options)


def test_gemma_of_a_file_is_that_of_a_folder(tmp_path):
    file = pretrained.load(gemma_file(tmp_path / "gemma.gguf"))
    folder = pretrained.load(write(tmp_path / "gemma", gemma(), GEMMA))
    np.testing.assert_array_equal(logits(file), logits(folder))
    names = "window", "pattern", "local_base"
    facts = [tuple(one.facts[name] for name in names) for one in (file, folder)]
    assert facts == [(8, "local,global", 300.0)] * 2
    # What a file omits is the rule of the published models: one in six layers, base 10,000.
    plain = read(gemma_file(tmp_path / "plain.gguf", of_pattern=False)).config.encoding
    assert (plain.options["pattern"], plain.options["local_base"]) == ("local", 1e4)


def test_gemma2_of_a_file_is_that_of_a_folder(tmp_path):
    of_heads = "q_norm.weight", "k_norm.weight"
    arrays = {name: array for name, array in gemma().items() if not name.endswith(of_heads)}

    def edit(writer):
        writer.add_sliding_window(8)
        writer.add_final_logit_softcapping(2.0)

    file = pretrained.load(write_gguf(tmp_path / "a.gguf", "gemma2", edit=edit, arrays=arrays))
    config = GEMMA | {"model_type": "gemma2", "final_logit_softcapping": 2.0}
    folder = pretrained.load(write(tmp_path / "a", arrays, config))
    np.testing.assert_array_equal(logits(file), logits(folder))
    assert file.model.config == folder.model.config and file.model.config.score_cap == 50
    assert (file.facts["window"], file.facts["pattern"]) == (8, "local,global")


def test_phi3_of_a_file_is_that_of_a_folder(tmp_path):
    arrays = drawn()
    for layer in range(LAYERS):
        for packed, parts in (("self_attn.qkv", "qkv"), ("mlp.gate_up", ("gate", "up"))):
            module = f"model.layers.{layer}.{packed.split('.')[0]}"
            rows = [arrays.pop(f"{module}.{part}_proj.weight") for part in parts]
            arrays[f"model.layers.{layer}.{packed}_proj.weight"] = np.concatenate(rows)
    file = pretrained.load(write_gguf(tmp_path / "a.gguf", "phi3", arrays=arrays))
    config = LLAMA | {"model_type": "phi3"}
    folder = pretrained.load(write(tmp_path / "a", arrays, config))
    np.testing.assert_array_equal(logits(file), logits(folder))
    wrong = arrays | {"model.layers.1.mlp.gate_up_proj.weight": np.ones((2 * F + 1, D), np.float32)}
    with pytest.raises(DataError, match="gate_up_proj.weight: .* cannot be split into 2"):
        read(write(tmp_path / "a", wrong, config))


def test_the_largest_gemmas_divide_scores_by_the_root_of_width_over_heads(tmp_path):
    for kind, layers in sources.LARGEST_GEMMA.items():
        facts = {f"{kind}.{key}": value for key, value in SIZES.items()}
        for count, expected in ((layers, D / H), (layers - 1, K)):
            given = facts | {f"{kind}.block_count": count, sources.TOKENS: ["a"]}
            assert sources._gguf_config(given, kind, {})["query_pre_attn_scalar"] == expected


def test_scales_of_gemma_are_whole_in_a_bfloat16_model(tmp_path):
    arrays = gemma(ml_dtypes.bfloat16)
    adopted = read(write(tmp_path / "gemma", arrays, GEMMA))
    assert adopted.config.model.dtype == "bfloat16"
    scale = adopted.params["model"]["blocks.attention_output_norm.scale"]
    held = arrays["model.layers.1.post_attention_layernorm.weight"].astype(np.float32)
    np.testing.assert_array_equal(scale[1], held + 1)
    assert (scale[1].astype(ml_dtypes.bfloat16) != scale[1]).any()
    norm = make_norm(adopted.config.model)
    norm.scale[...] = jnp.full_like(norm.scale[...], 1 + 2**-8)  # half of a step of bfloat16
    x = jax.random.normal(jax.random.key(0), (1000, adopted.config.model.width))
    right = x / np.sqrt(np.square(x).mean(axis=1, keepdims=True))
    ratio = np.vdot(norm(x), right) / np.vdot(right, right)
    np.testing.assert_allclose(ratio, 1 + 2**-8, atol=2e-4)


def test_an_adopted_file_is_the_model_of_its_folder(tmp_path):
    run = tmp_path / "run"
    facts = adopt(write_gguf(tmp_path / "model.gguf"), run)
    assert facts["prefix"] is None
    # The decimal numbers that were written, not their float32.
    assert (facts["eps"], facts["theta"], facts["L"]) == (1e-5, 5000.0, L)
    loaded = posenc_jax.load_run(run)
    assert loaded.config.data.prefix is None and loaded.tokenizer.encode("a").size == 1
    folder = pretrained.load(write(tmp_path / "llama", config=LLAMA))
    np.testing.assert_array_equal(logits(loaded), logits(folder))


@pytest.mark.parametrize(
    ("pre", "stated", "prefix"),
    [
        ("llama-bpe", None, 0),
        ("llama-bpe", False, None),
        ("smollm", None, None),
        ("smollm", True, 0),
    ],
)
def test_bos_comes_first_where_the_file_or_llama3_says_so(pre, stated, prefix, tmp_path):
    file = write_gguf(tmp_path / "model.gguf", pre=pre, add_bos=stated)
    assert read(file).config.data.prefix == prefix
