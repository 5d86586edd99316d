#!/usr/bin/env python3
"""Makes tests/fixtures/huggingface/NAME/: tiny random models as Hugging Face transformers saves them,
each with expected.bin, what transformers computes with it.

Needs the comparison environment (scripts/compare-env; made with torch 2.11.0 and transformers 5.23.0):
    .deps/compare/bin/python scripts/make_huggingface_fixtures.py tests/fixtures/huggingface

expected.bin has the format of scripts/make_model_fixtures.py: tokens (rows, length) int32, logits
(rows, length, vocab) float32, and greedy (rows, new) int32, the tokens that generate() adds to each row.
"""

import pathlib
import shutil
import sys

import torch
import transformers

from make_model_fixtures import write

VOCAB, LAYERS, WIDTH, POSITIONS, ROWS, LENGTH, NEW = 67, 3, 24, 24, 2, 13, 11
COMMON = dict(bos_token_id=None, eos_token_id=None)


def gpt2(**keys):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCAB, n_positions=POSITIONS, n_embd=WIDTH, n_layer=LAYERS, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **COMMON, **keys))


def rotary(config, model, **keys):
    defaults = dict(vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=40,
                    num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2,
                    max_position_embeddings=POSITIONS, **COMMON)
    return model(config(**{**defaults, **keys}))


def llama(**keys):
    return rotary(transformers.LlamaConfig, transformers.LlamaForCausalLM, **keys)


def mistral(**keys):
    return rotary(transformers.MistralConfig, transformers.MistralForCausalLM, **keys)


def qwen3(**keys):
    return rotary(transformers.Qwen3Config, transformers.Qwen3ForCausalLM, **keys)


def rope(theta):
    return dict(rope_parameters={"rope_type": "default", "rope_theta": theta})


# Name: (model, how it is saved).
MODELS = {
    "gpt2": (lambda: gpt2(), {}),
    "gpt2_untied": (lambda: gpt2(activation_function="gelu", n_inner=40, tie_word_embeddings=False),
                    {"max_shard_size": "12KB"}),
    "llama": (lambda: llama(rms_norm_eps=1e-6, **rope(500000.0)), {"dtype": torch.bfloat16}),
    "llama_biases": (lambda: llama(attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                   num_key_value_heads=4), {}),
    "mistral": (lambda: mistral(sliding_window=5), {"dtype": torch.float16}),
    "qwen3": (lambda: qwen3(head_dim=8, tie_word_embeddings=True, use_sliding_window=True,
                            sliding_window=4, **rope(1000000.0),
                            layer_types=["sliding_attention", "full_attention",
                                         "sliding_attention"]), {}),
}


def make(folder, build, saved, seed):
    torch.manual_seed(seed)
    model = build().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.15 * torch.randn_like(parameter))
    saved = dict(saved)
    model = model.to(saved.pop("dtype", torch.float32))
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, **saved)
    # Of what was saved; .float() would leave the rotary frequencies rounded to the type before.
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokens = torch.randint(VOCAB, (ROWS, LENGTH))
    with torch.no_grad():
        logits = model(input_ids=tokens).logits
        # Without a mask every token 0 would be taken for padding.
        greedy = model.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False,
                                max_new_tokens=NEW, pad_token_id=0)[:, LENGTH:]
    write(folder / "expected.bin", [("tokens", tokens.int()), ("logits", logits),
                                    ("greedy", greedy.int().contiguous())])


def main():
    root = pathlib.Path(sys.argv[1])
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    for seed, (name, (build, saved)) in enumerate(MODELS.items()):
        make(root / name, build, saved, seed + 1)


if __name__ == "__main__":
    main()
