"""The same OPD and LENS iterations in PyTorch with `transformers`: the twin of `lens bench loop`.

Replays a recording of `lens bench loop --record FILE`: the same prompts in the same batches, responses of the same
lengths, the same rows judged and trained on. Environments cost nothing here. Prints one JSON line: seconds of each stage
for each method, after one batch of each to warm up.

    python loop.py FILE [float32|bfloat16]

The last word is the type of the teacher's weights; the student, which is trained, has float32.

Written as one would write it by hand: padded batches with a key-value cache that is kept for the whole response, no
gradients and no head outside the response when judging, rows sorted by length and cut into micro-batches by tokens, a fused
AdamW.
"""

import json
import resource
import sys
import time

import torch
from transformers import AutoModelForCausalLM, DynamicCache

# Sequences decoded together, as in `lens`.
MAX_BATCH = 64
# Padded tokens of a batch that is judged, and of a micro-batch that is trained on. What autograd keeps of a token of a real
# model takes about two megabytes, so that more would not fit; a small model is slowed down by small micro-batches.
JUDGED_TOKENS = 8192
TRAINED_TOKENS = {"small": 8192, "real": 2048}


def padded(sequences, left):
    """Tokens, attention mask and positions of a padded batch."""
    longest = max(map(len, sequences))
    tokens = torch.zeros(len(sequences), longest, dtype=torch.long)
    mask = torch.zeros(len(sequences), longest, dtype=torch.long)
    for row, sequence in enumerate(sequences):
        at = slice(longest - len(sequence), longest) if left else slice(0, len(sequence))
        tokens[row, at] = torch.tensor(sequence)
        mask[row, at] = 1
    return tokens, mask, (mask.cumsum(-1) - 1).clamp(min=0)


def groups(rows, length, most):
    """Rows of similar length whose padded tokens stay below `most`."""
    group, longest = [], 0
    for row in sorted(rows, key=length):
        longest = max(longest, length(row))
        if group and longest * (len(group) + 1) > most:
            yield group
            group, longest = [], length(row)
        group.append(row)
    if group:
        yield group


def text(row, prompt="prompt"):
    # The last response token predicts nothing that is asked for.
    return row[prompt] + row["response"][:-1]


class Twin:
    def __init__(self, setup, teacher_dtype):
        load = lambda path, dtype: AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, attn_implementation="sdpa")
        self.student = load(setup["student"], torch.float32)
        self.teacher = load(setup["teacher"], teacher_dtype).eval()
        self.teacher.requires_grad_(False)
        self.trained_tokens = TRAINED_TOKENS["small" if self.student.config.hidden_size <= 256 else "real"]
        self.optimizer = torch.optim.AdamW(self.student.parameters(), lr=setup["lr"], fused=True)
        self.targets = {}
        self.checks = []

    @torch.inference_mode()
    def generate(self, model, rows):
        model.eval()
        for first in range(0, len(rows), MAX_BATCH):
            batch = rows[first:first + MAX_BATCH]
            tokens, mask, positions = padded([row["prompt"] for row in batch], left=True)
            lengths = torch.tensor([row["tokens"] for row in batch])
            temperatures = torch.tensor([row["temperature"] for row in batch])[:, None]
            cache = DynamicCache(config=model.config)
            position = positions[:, -1:]
            for step in range(int(lengths.max())):
                logits = model(
                    tokens, attention_mask=mask, position_ids=positions, past_key_values=cache,
                    use_cache=True, logits_to_keep=1).logits[:, -1]
                greedy = temperatures == 0
                logits = logits.float()
                logprobs = torch.log_softmax(logits / torch.where(greedy, 1.0, temperatures), -1)
                drawn = torch.multinomial(logprobs.exp(), 1)
                tokens = torch.where(greedy, logprobs.argmax(-1, keepdim=True), drawn)
                logprobs.gather(-1, tokens)
                position = position + 1
                positions = position
                mask = torch.cat((mask, torch.ones_like(tokens)), dim=1)

    def states(self, model, group, prompt="prompt"):
        """The hidden states that predict the response tokens, all rows below one another."""
        tokens, mask, positions = padded([text(row, prompt) for row in group], left=False)
        hidden = model.model(
            tokens, attention_mask=mask, position_ids=positions, use_cache=False).last_hidden_state
        return torch.cat([
            hidden[row, len(one[prompt]) - 1:len(one[prompt]) - 1 + len(one["response"])]
            for row, one in enumerate(group)])

    @torch.inference_mode()
    def compare(self, rows, mean_kl):
        self.student.eval()
        total, count = 0.0, 0
        for compare in (True, False):
            chosen = [row for row in rows if row["compare"] == compare and row["response"]]
            for group in groups(chosen, lambda row: len(text(row)), JUDGED_TOKENS):
                hidden = self.states(self.teacher, group)
                teacher = torch.log_softmax(self.teacher.lm_head(hidden).float(), -1)
                realized = torch.tensor([token for row in group for token in row["response"]])
                teacher.gather(-1, realized[:, None])
                self.keep(group, hidden, self.teacher)
                if not compare:
                    continue
                student = torch.log_softmax(
                    self.student.lm_head(self.states(self.student, group)), -1)
                student.gather(-1, realized[:, None])
                for one, other in ((student, teacher), (teacher, student)):
                    top = one.max(-1)
                    other.gather(-1, top.indices[:, None])
                kl = (student.exp() * (student - teacher)).sum(-1)
                total, count = total + kl.sum().item(), count + len(kl)
        if count:
            self.checks.append((mean_kl, total / count))

    @torch.inference_mode()
    def internalize(self, rows):
        self.student.eval()
        # The head that reads the states is the snapshot's own.
        head = self.student.lm_head.weight.clone()
        for group in groups(rows, lambda row: len(text(row, "hinted")), JUDGED_TOKENS):
            hidden = self.states(self.student, group, "hinted")
            hinted = torch.log_softmax(hidden @ head.T, -1)
            plain = torch.log_softmax(self.student.lm_head(self.states(self.student, group)), -1)
            (hinted.exp() * (hinted - plain)).sum(-1).mean().item()
            self.keep(group, hidden, None, head)

    def keep(self, group, hidden, model, head=None):
        first = 0
        for row in group:
            states = hidden[first:first + len(row["response"])].clone()
            first += len(row["response"])
            head_of_row = model.lm_head.weight if model is not None else head
            self.targets.setdefault(self.key(row), []).append((states, head_of_row))

    @staticmethod
    def key(row):
        return tuple(row["prompt"]), tuple(row["response"])

    def learn(self, rows):
        self.student.train()
        self.optimizer.zero_grad(set_to_none=True)
        for group in groups(rows, lambda row: len(text(row)), self.trained_tokens):
            with torch.no_grad():
                # A row is trained on once; what is left over was judged for a fork alone.
                parts = [self.targets[self.key(row)].pop() for row in group]
                target = torch.cat([torch.log_softmax((states @ head.T).float(), -1) for states, head in parts])
            student = torch.log_softmax(self.student.lm_head(self.states(self.student, group)), -1)
            weights = torch.tensor([weight for row in group for weight in row["coefficients"]])
            loss = (weights * (student.exp() * (student - target)).sum(-1)).sum()
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self.student.parameters(), 1.0)
        self.optimizer.step()


def replay(path, teacher_dtype):
    results, twin, seconds = {}, None, None
    judged = warm = False
    with open(path) as lines:
        for line in lines:
            event = json.loads(line)
            kind = event.pop("kind")
            if kind == "setup":
                setup = event
                torch.set_num_threads(setup["threads"])
                torch.manual_seed(0)
                continue
            if kind == "batch":
                if event["number"] == 0:
                    twin = Twin(setup, teacher_dtype)
                    seconds = results.setdefault(event["method"], {})
                warm = event["number"] > 0
                judged = False
                continue
            rows = event["rows"]
            started = time.perf_counter()
            if kind == "student":
                twin.generate(twin.student, rows)
                stage = "fork: generate" if judged else "generate"
            elif kind == "teacher":
                twin.generate(twin.teacher, rows)
                stage = "fork: hints"
            elif kind == "compare":
                twin.compare(rows, event["mean_kl"])
                stage = "fork: score" if judged else "score"
                judged = True
            elif kind == "internalize":
                twin.internalize(rows)
                stage = "fork: score"
            else:
                twin.learn(rows)
                stage = "train"
            if warm:
                seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - started
    return results, twin.checks


def main():
    results, checks = replay(sys.argv[1], getattr(torch, (sys.argv[2:] or ["float32"])[0]))
    print(json.dumps({
        "methods": results,
        "mean_kl": checks,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }))


if __name__ == "__main__":
    main()
