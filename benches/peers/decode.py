"""Times decoding in PyTorch as a `transformers` user runs it: a batch of sequences with a filled cache, one forward and
one sampled token at a time. Prints one JSON line.

    python decode.py --shape qwen3-0.6b --dtype bfloat16

Keys and values of the cached positions are random (their price does not depend on what they say), so no time goes into
a prefill that is not measured.
"""

import argparse
import json
import resource
import time

import torch
from transformers import DynamicCache, LlamaConfig, Qwen3Config
from transformers import AutoModelForCausalLM

LLAMA = dict(rms_norm_eps=1e-5, rope_theta=1e5, tie_word_embeddings=True, max_position_embeddings=2048)
SHAPES = {
    "laboratory": lambda: LlamaConfig(
        hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, vocab_size=2048, **LLAMA),
    "smollm2-135m": lambda: LlamaConfig(
        hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, head_dim=64, vocab_size=49152, **LLAMA),
    "qwen3-0.6b": lambda: Qwen3Config(
        hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, vocab_size=151936, rms_norm_eps=1e-6, rope_theta=1e6,
        tie_word_embeddings=True, max_position_embeddings=2048),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="laboratory")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--cached", type=int, default=512)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    dtype = getattr(torch, options.dtype)
    config = SHAPES[options.shape]()
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa").eval()
    cache = DynamicCache()
    size = (options.batch, config.num_key_value_heads, options.cached, config.head_dim)
    for layer in range(config.num_hidden_layers):
        cache.update(torch.randn(size, dtype=dtype), torch.randn(size, dtype=dtype), layer)
    tokens = torch.randint(0, config.vocab_size, (options.batch, 1))
    seconds = []
    with torch.inference_mode():
        for _ in range(options.repeats + 1):
            start = time.perf_counter()
            for _ in range(options.steps):
                logits = model(tokens, past_key_values=cache, use_cache=True).logits[:, -1].float()
                tokens = torch.multinomial(torch.softmax(logits, dim=-1), 1)
            seconds.append(time.perf_counter() - start)
    seconds = seconds[1:]
    print(json.dumps({
        "name": options.shape,
        "dtype": options.dtype,
        "tokens_per_second": options.batch * options.steps / min(seconds),
        "seconds": seconds,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }))


if __name__ == "__main__":
    main()
