"""Times scoring in PyTorch with `transformers`: one forward over a batch of prompts with responses, the output head at
the response positions alone, log-softmax, the realized tokens' log-probabilities and the most likely tokens. Prints one
JSON line.

    python score.py --shape smollm2-135m --rows 4
"""

import argparse
import json
import resource
import time

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

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
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=1000)
    parser.add_argument("--response", type=int, default=30)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    config = SHAPES[options.shape]()
    length = options.prompt + options.response
    config.max_position_embeddings = max(config.max_position_embeddings, length)
    dtype = getattr(torch, options.dtype)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa").eval()
    tokens = torch.randint(0, config.vocab_size, (options.rows, length))
    seconds = []
    with torch.inference_mode():
        for _ in range(options.repeats + 1):
            start = time.perf_counter()
            logits = model(tokens, use_cache=False, logits_to_keep=options.response + 1).logits[:, :-1]
            logprobs = torch.log_softmax(logits.float(), dim=-1)
            realized = logprobs.gather(-1, tokens[:, options.prompt:, None]).squeeze(-1)
            best, top1 = logprobs.max(dim=-1)
            seconds.append(time.perf_counter() - start)
    assert realized.shape == top1.shape == best.shape == (options.rows, options.response)
    seconds = seconds[1:]
    print(json.dumps({
        "name": options.shape,
        "tokens_per_second": options.rows * length / min(seconds),
        "seconds": seconds,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }))


if __name__ == "__main__":
    main()
