"""TRL's DistillationTrainer on the parts of an OPD iteration that it has: it writes a response to every prompt, lets the
teacher judge it and takes an optimizer step. It knows no episodes, so every row that `lens` trained on is a prompt of its
own. Reads a recording of `lens bench loop --record FILE` and prints one JSON line.

    python trl_step.py FILE [float32|bfloat16]

The last word is the type of the teacher's weights.
"""

import json
import sys
import tempfile
import time

import torch
from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback
from trl import DistillationConfig, DistillationTrainer


class Clock(TrainerCallback):
    """When training began and each optimizer step ended."""

    def __init__(self):
        self.ends = []

    def on_train_begin(self, *_args, **_kwargs):
        self.ends.append(time.perf_counter())

    def on_step_end(self, *_args, **_kwargs):
        self.ends.append(time.perf_counter())


def batches(path):
    """The setup, and the rows of every optimizer step of OPD; the steps of the first explorer batch are to warm up."""
    setup, method, warm, steps = None, None, False, []
    with open(path) as lines:
        for line in lines:
            event = json.loads(line)
            if event["kind"] == "setup":
                setup = event
            elif event["kind"] == "batch":
                method, warm = event["method"], event["number"] > 0
            elif event["kind"] == "learn" and method == "opd":
                steps.append((warm, event["rows"]))
    return setup, steps


def main():
    setup, steps = batches(sys.argv[1])
    if not any(warm for warm, _ in steps):
        print(json.dumps({"rows": 0, "seconds": 0.0}))
        return
    torch.set_num_threads(setup["threads"])
    tokenizer = AutoTokenizer.from_pretrained(setup["student"])
    rows = [row for _, step in steps for row in step]
    size = len(steps[0][1])
    prompts = Dataset.from_list([{"prompt": tokenizer.decode(row["prompt"])} for row in rows])
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        options = DistillationConfig(
            output_dir=folder, use_cpu=True, bf16=False, report_to="none", save_strategy="no",
            logging_strategy="no", disable_tqdm=True, shuffle_dataset=False, max_steps=len(steps),
            per_device_train_batch_size=size, gradient_accumulation_steps=1,
            gradient_checkpointing=False, learning_rate=setup["lr"], lr_scheduler_type="constant",
            temperature=1.0, max_completion_length=max(len(row["response"]) for row in rows),
            beta=1.0, dataloader_pin_memory=False,
            model_init_kwargs={"dtype": "float32"}, teacher_model_init_kwargs={"dtype": (sys.argv[2:] or ["float32"])[0]})
        trainer = DistillationTrainer(
            model=setup["student"], teacher_model=setup["teacher"], args=options,
            train_dataset=prompts, processing_class=tokenizer, callbacks=[clock])
        trainer.train()
    first = sum(not warm for warm, _ in steps)
    counted = [len(step) for warm, step in steps if warm]
    print(json.dumps({"rows": sum(counted), "seconds": clock.ends[-1] - clock.ends[first]}))


if __name__ == "__main__":
    main()
