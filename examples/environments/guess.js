#!/usr/bin/env node
// Guess a number from the answers "higher" and "lower". An environment for `task.benchmark = "stdio"`:
// JSON lines on standard input and output, no packages needed (docs/reference/stdio-protocol.md).
// It has no snapshots, so its forks are replayed.
"use strict";
const readline = require("node:readline");

const tasks = [];
for (const [split, first, last] of [["train", 1, 20], ["test", 21, 30]]) {
  for (let number = first; number <= last; number += 1) {
    tasks.push({ id: `${split}-${number}`, split, reset: { number: (number * 37) % 64 } });
  }
}

let game = null;

function view(observation) {
  return {
    type: "view",
    task: "guess the number between 0 and 63; answer with a number alone.",
    observation,
    score: game.solved ? 1 : 0,
    done: game.solved,
    success: game.solved,
  };
}

function answer(request) {
  switch (request.type) {
    case "hello":
      return { type: "hello", version: 1, turn_limit: 8, score: "zero-to-one" };
    case "tasks":
      return { type: "tasks", tasks };
    case "reset":
      game = { number: request.data.number, solved: false };
      return view("I think of a number.");
    case "step": {
      const guess = Number.parseInt(request.action, 10);
      if (Number.isNaN(guess)) return view("That is not a number.");
      game.solved = guess === game.number;
      if (game.solved) return view("Right!");
      return view(guess < game.number ? `It is higher than ${guess}.` : `It is lower than ${guess}.`);
    }
    default:
      return { type: "error", message: `unknown request ${request.type}` };
  }
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  process.stdout.write(`${JSON.stringify(answer(JSON.parse(line)))}\n`);
});
