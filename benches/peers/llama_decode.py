"""Times decoding in llama.cpp: a batch of sequences with a filled cache, one llama_decode for all of them at a time, the
most likely token of each; with `--prefill LENGTH` a prompt of that many tokens instead. Weights are random bf16, written
to a temporary GGUF file. Prints one JSON line.

    python llama_decode.py --shape smollm2-135m

`--write FILE` writes the model there and leaves it at that, for `lens bench load FILE`.

llama.cpp's C interface is called directly in the library that `llama_cpp` (llama-cpp-python) or `xllamacpp` brings along.
"""

import argparse
import ctypes
import glob
import importlib.util
import json
import os
import resource
import struct
import tempfile
import time

import numpy as np

SHAPES = {
    "laboratory": dict(arch="llama", hidden=128, ff=384, layers=4, heads=4, kv=2, dim=32, vocab=2048, theta=1e5, eps=1e-5),
    "smollm2-135m": dict(arch="llama", hidden=576, ff=1536, layers=30, heads=9, kv=3, dim=64, vocab=49152, theta=1e5, eps=1e-5),
    "qwen3-0.6b": dict(arch="qwen3", hidden=1024, ff=3072, layers=28, heads=16, kv=8, dim=128, vocab=151936, theta=1e6, eps=1e-6),
    "qwen3-1.5b": dict(arch="qwen3", hidden=1536, ff=8960, layers=28, heads=12, kv=2, dim=128, vocab=151936, theta=1e6, eps=1e-6),
}
F32, BF16 = 0, 30
CONTEXT = 2048


def library():
    """Opens the shared library that exports llama.cpp's C interface."""
    for module, pattern in (("llama_cpp", "lib/libllama.so"), ("xllamacpp", "xllamacpp*.so")):
        found = importlib.util.find_spec(module)
        if found is not None:
            for path in glob.glob(os.path.join(os.path.dirname(found.origin), pattern)):
                return ctypes.CDLL(path)
    raise SystemExit("neither llama_cpp nor xllamacpp is installed")


def text(value):
    value = value.encode()
    return struct.pack("<Q", len(value)) + value


def write_model(path, s):
    """A GGUF file with random weights and no vocabulary."""
    arch = s["arch"]
    integers = {
        "context_length": CONTEXT, "embedding_length": s["hidden"], "block_count": s["layers"],
        "feed_forward_length": s["ff"], "attention.head_count": s["heads"], "attention.head_count_kv": s["kv"],
        "attention.key_length": s["dim"], "attention.value_length": s["dim"], "rope.dimension_count": s["dim"],
        "vocab_size": s["vocab"],
    }
    floats = {"attention.layer_norm_rms_epsilon": s["eps"], "rope.freq_base": s["theta"]}
    fields = [text("general.architecture") + struct.pack("<I", 8) + text(arch)]
    fields += [text("tokenizer.ggml.model") + struct.pack("<I", 8) + text("none")]
    fields += [text(f"{arch}.{key}") + struct.pack("<II", 4, value) for key, value in integers.items()]
    fields += [text(f"{arch}.{key}") + struct.pack("<If", 6, value) for key, value in floats.items()]

    q, kv = s["heads"] * s["dim"], s["kv"] * s["dim"]
    tensors = [("token_embd.weight", (s["hidden"], s["vocab"])), ("output_norm.weight", (s["hidden"],))]
    for layer in range(s["layers"]):
        block = {
            "attn_norm": (s["hidden"],), "ffn_norm": (s["hidden"],),
            "attn_q": (s["hidden"], q), "attn_k": (s["hidden"], kv), "attn_v": (s["hidden"], kv),
            "attn_output": (q, s["hidden"]), "ffn_gate": (s["hidden"], s["ff"]),
            "ffn_up": (s["hidden"], s["ff"]), "ffn_down": (s["ff"], s["hidden"]),
        }
        if arch == "qwen3":
            block |= {"attn_q_norm": (s["dim"],), "attn_k_norm": (s["dim"],)}
        tensors += [(f"blk.{layer}.{name}.weight", shape) for name, shape in block.items()]

    generator = np.random.default_rng(0)
    noise = (generator.random(1 << 20, dtype=np.float32) * 0.07 - 0.035).view(np.uint32) >> 16
    noise = noise.astype(np.uint16)
    infos, offset = [], 0
    for name, shape in tensors:
        kind, width = (F32, 4) if len(shape) == 1 else (BF16, 2)
        dims = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        infos.append(text(name) + dims + struct.pack("<IQ", kind, offset))
        offset += -(-int(np.prod(shape)) * width // 32) * 32
    with open(path, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields)))
        file.write(b"".join(fields) + b"".join(infos))
        file.write(b"\0" * (-file.tell() % 32))
        for _, shape in tensors:
            count = int(np.prod(shape))
            data = np.ones(count, np.float32) if len(shape) == 1 else np.resize(noise, count)
            data = data.tobytes()
            file.write(data + b"\0" * (-len(data) % 32))


class Params(ctypes.Structure):
    """A parameter struct whose size differs between releases: room for any of them."""
    _fields_ = [("words", ctypes.c_uint32 * 256)]


class Batch(ctypes.Structure):
    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.POINTER(ctypes.c_float)),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="laboratory")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--cached", type=int, default=512)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--prefill", type=int)
    parser.add_argument("--write")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    s = SHAPES[options.shape]
    if options.write:
        write_model(options.write, s)
        return

    lib = library()
    lib.llama_model_default_params.restype = Params
    lib.llama_context_default_params.restype = Params
    lib.llama_model_load_from_file.restype = ctypes.c_void_p
    lib.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Params]
    lib.llama_init_from_model.restype = ctypes.c_void_p
    lib.llama_init_from_model.argtypes = [ctypes.c_void_p, Params]
    lib.llama_batch_init.restype = Batch
    lib.llama_decode.argtypes = [ctypes.c_void_p, Batch]
    lib.llama_set_n_threads.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32]
    lib.llama_get_memory.restype = ctypes.c_void_p
    lib.llama_get_memory.argtypes = [ctypes.c_void_p]
    lib.llama_memory_seq_cp.argtypes = [ctypes.c_void_p, *[ctypes.c_int32] * 4]
    lib.llama_memory_clear.argtypes = [ctypes.c_void_p, ctypes.c_bool]
    lib.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
    lib.llama_get_logits_ith.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    lib.llama_print_system_info.restype = ctypes.c_char_p
    lib.llama_backend_init()

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        write_model(path, s)
        model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
        if not model:
            raise SystemExit("llama.cpp did not load the model")
        params = lib.llama_context_default_params()
        # The first fields have kept their places: n_ctx, n_batch, n_ubatch, n_seq_max.
        length = options.cached + options.steps * (options.repeats + 2)
        if options.prefill:
            length, options.batch = options.prefill, 1
        params.words[0] = options.batch * (-(-length // 256) * 256)
        params.words[1] = params.words[2] = 512
        params.words[3] = options.batch
        context = lib.llama_init_from_model(model, params)
        if not context:
            raise SystemExit("llama.cpp did not make a context")
        lib.llama_set_n_threads(context, options.threads, options.threads)

    batch = lib.llama_batch_init(512, 0, 1)

    def put(at, token, position, sequence, logits):
        batch.token[at], batch.pos[at], batch.n_seq_id[at] = int(token), position, 1
        batch.seq_id[at][0], batch.logits[at] = sequence, logits

    def decode(count):
        batch.n_tokens = count
        if lib.llama_decode(context, batch) != 0:
            raise SystemExit("llama_decode failed")

    def finish(tokens, seconds):
        print(json.dumps({
            "name": options.shape,
            "tokens_per_second": tokens / min(seconds[1:]),
            "seconds": seconds[1:],
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "system": lib.llama_print_system_info().decode(),
        }))

    if options.prefill:
        generator = np.random.default_rng(1)
        tokens = generator.integers(s["vocab"], size=options.prefill)
        seconds = []
        for _ in range(options.repeats + 1):
            lib.llama_memory_clear(lib.llama_get_memory(context), True)
            start = time.perf_counter()
            for first in range(0, options.prefill, 512):
                count = min(512, options.prefill - first)
                for at in range(count):
                    put(at, tokens[first + at], first + at, 0, first + at + 1 == options.prefill)
                decode(count)
            seconds.append(time.perf_counter() - start)
        finish(options.prefill, seconds)
        return

    # One sequence is run and copied to the others: each has cells of its own.
    generator = np.random.default_rng(1)
    for first in range(0, options.cached, 512):
        count = min(512, options.cached - first)
        for at in range(count):
            put(at, generator.integers(s["vocab"]), first + at, 0, at + 1 == count)
        decode(count)
    memory = lib.llama_get_memory(context)
    for sequence in range(1, options.batch):
        lib.llama_memory_seq_cp(memory, 0, sequence, -1, -1)

    tokens = generator.integers(s["vocab"], size=options.batch)
    position, seconds = options.cached, []
    for _ in range(options.repeats + 1):
        start = time.perf_counter()
        for _ in range(options.steps):
            for sequence in range(options.batch):
                put(sequence, tokens[sequence], position, sequence, 1)
            decode(options.batch)
            for sequence in range(options.batch):
                logits = np.ctypeslib.as_array(lib.llama_get_logits_ith(context, sequence), (s["vocab"],))
                tokens[sequence] = logits.argmax()
            position += 1
        seconds.append(time.perf_counter() - start)
    finish(options.batch * options.steps, seconds)


if __name__ == "__main__":
    main()
