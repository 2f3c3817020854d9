"""Times a train step in PyTorch: forward, backward, clip and AdamW with full-vocabulary KL against a teacher.

The model is written the way transformers writes it (separate projections, rotate_half, repeat_kv, a padded batch with
a mask). The teacher's last hidden states are given, as in the Rust benchmark; its head is applied here. Prints one JSON line.

    python train_step.py --shape laboratory --steps 3 --attention sdpa --logits response
"""

import argparse
import json
import resource
import time

import torch
import torch.nn.functional as F
from torch import nn

SHAPES = {
    "laboratory": dict(hidden=128, ff=384, layers=4, heads=4, kv=2, dim=32, vocab=2048, rows=64,
                       lengths=(300, 500), theta=1e5, eps=1e-5, qk_norm=False),
    "smollm2-135m": dict(hidden=576, ff=1536, layers=30, heads=9, kv=3, dim=64, vocab=49152, rows=4,
                         lengths=(512, 512), theta=1e5, eps=1e-5, qk_norm=False),
    "qwen3-0.6b": dict(hidden=1024, ff=3072, layers=28, heads=16, kv=8, dim=128, vocab=151936, rows=1,
                       lengths=(512, 512), theta=1e6, eps=1e-6, qk_norm=True),
}


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + self.eps))


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def repeat_kv(x, times):
    if times == 1:
        return x
    batch, heads, length, dim = x.shape
    return x[:, :, None].expand(batch, heads, times, length, dim).reshape(batch, heads * times, length, dim)


class Block(nn.Module):
    def __init__(self, s, attention):
        super().__init__()
        self.s, self.attention = s, attention
        self.input_norm = RMSNorm(s["hidden"], s["eps"])
        self.post_norm = RMSNorm(s["hidden"], s["eps"])
        self.q = nn.Linear(s["hidden"], s["heads"] * s["dim"], bias=False)
        self.k = nn.Linear(s["hidden"], s["kv"] * s["dim"], bias=False)
        self.v = nn.Linear(s["hidden"], s["kv"] * s["dim"], bias=False)
        self.o = nn.Linear(s["heads"] * s["dim"], s["hidden"], bias=False)
        self.gate = nn.Linear(s["hidden"], s["ff"], bias=False)
        self.up = nn.Linear(s["hidden"], s["ff"], bias=False)
        self.down = nn.Linear(s["ff"], s["hidden"], bias=False)
        if s["qk_norm"]:
            self.q_norm = RMSNorm(s["dim"], s["eps"])
            self.k_norm = RMSNorm(s["dim"], s["eps"])

    def forward(self, x, cos, sin, mask):
        s = self.s
        batch, length, _ = x.shape
        h = self.input_norm(x)
        q = self.q(h).view(batch, length, s["heads"], s["dim"])
        k = self.k(h).view(batch, length, s["kv"], s["dim"])
        v = self.v(h).view(batch, length, s["kv"], s["dim"]).transpose(1, 2)
        if s["qk_norm"]:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = q.transpose(1, 2), k.transpose(1, 2)
        q = q * cos + rotate_half(q) * sin
        k = k * cos + rotate_half(k) * sin
        k, v = repeat_kv(k, s["heads"] // s["kv"]), repeat_kv(v, s["heads"] // s["kv"])
        if self.attention == "sdpa":
            # Without padding the mask is dropped, which lets PyTorch choose its causal kernel.
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        else:
            scores = torch.matmul(q, k.transpose(2, 3)) * s["dim"] ** -0.5 + mask
            out = torch.matmul(torch.softmax(scores, dim=-1), v)
        x = x + self.o(out.transpose(1, 2).reshape(batch, length, -1))
        h = self.post_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self, s, attention):
        super().__init__()
        self.embed = nn.Embedding(s["vocab"], s["hidden"])
        self.blocks = nn.ModuleList(Block(s, attention) for _ in range(s["layers"]))
        self.norm = RMSNorm(s["hidden"], s["eps"])
        frequencies = s["theta"] ** (-torch.arange(0, s["dim"], 2).float() / s["dim"])
        angles = torch.outer(torch.arange(s["lengths"][1]).float(), frequencies)
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens, mask):
        length = tokens.shape[1]
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos[:length], self.sin[:length], mask)
        return self.norm(x)


def micro_batches(lengths, most):
    """Rows of similar length whose padded tokens stay below `most`."""
    group = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if group and lengths[row] * (len(group) + 1) > most:
            yield group
            group = []
        group.append(row)
    yield group


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="laboratory")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--response-share", type=float, default=0.5)
    parser.add_argument("--attention", choices=("sdpa", "eager"), default="sdpa")
    parser.add_argument("--logits", choices=("response", "all"), default="response",
                        help="which positions go through the head: the loss positions, or all of them as a plain forward does")
    parser.add_argument("--micro-batch-tokens", type=int, default=8192,
                        help="padded tokens of a micro-batch of rows of similar length")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    s = SHAPES[options.shape]
    low, high = s["lengths"]
    lengths = [low + row * 7919 % (high - low + 1) for row in range(s["rows"])]
    counts = [min(max(int(length * options.response_share), 1), length - 1) for length in lengths]
    model = Model(s, options.attention)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.uniform_(parameter, -0.035, 0.035)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.01, fused=True)
    teacher_head = torch.rand(s["vocab"], s["hidden"]) * 0.1 - 0.05
    teacher_hidden = [torch.rand(count, s["hidden"]) * 4.0 - 2.0 for count in counts]

    groups = []
    for rows in micro_batches(lengths, options.micro_batch_tokens):
        longest = max(lengths[row] for row in rows)
        tokens = torch.zeros(len(rows), longest, dtype=torch.long)
        loss_mask = torch.zeros(len(rows), longest, dtype=torch.bool)
        for at, row in enumerate(rows):
            tokens[at, :lengths[row]] = torch.randint(0, s["vocab"], (lengths[row],))
            loss_mask[at, lengths[row] - counts[row] - 1:lengths[row] - 1] = True
        causal = torch.full((longest, longest), float("-inf")).triu(1)
        mask = causal[None, None].repeat(len(rows), 1, 1, 1)
        padded = False
        for at, row in enumerate(rows):
            mask[at, :, :, lengths[row]:] = float("-inf")
            padded |= lengths[row] != longest
        if options.attention == "sdpa" and not padded:
            mask = None
        groups.append((tokens, loss_mask, mask, torch.cat([teacher_hidden[row] for row in rows])))

    seconds, losses = [], []
    for _ in range(options.steps + 1):
        start = time.perf_counter()
        optimizer.zero_grad()
        total = 0.0
        for tokens, loss_mask, mask, hidden_t in groups:
            hidden = model(tokens, mask)
            if options.logits == "all":
                logits = (hidden @ model.embed.weight.T)[loss_mask]
            else:
                logits = hidden[loss_mask] @ model.embed.weight.T
            with torch.no_grad():
                teacher_logp = torch.log_softmax(hidden_t @ teacher_head.T, dim=-1)
            logp = torch.log_softmax(logits, dim=-1)
            loss = (logp.exp() * (logp - teacher_logp)).sum() / sum(counts)
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - start)
        losses.append(total)
    seconds = seconds[1:]
    print(json.dumps({
        "name": options.shape,
        "tokens_per_second": sum(lengths) / min(seconds),
        "seconds": seconds,
        "tokens": sum(lengths),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "attention": options.attention,
        "logits": options.logits,
        "losses": losses,
    }))


if __name__ == "__main__":
    main()
