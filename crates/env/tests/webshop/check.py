"""Checks the recordings and our goals once more with nothing but Python's own library.

    lens data webshop export --out CATALOG
    python check.py recordings CATALOG

Draws come from Python's random, likeness from its difflib, goals, prices and rewards from the rules written down here a
second time, in another language and by another hand than the engine's.
"""

import difflib
import itertools
import json
import random
import re
import sys
from decimal import Decimal
from pathlib import Path

checked = failed = 0


def expect(what, ours, recorded):
    global checked, failed
    checked += 1
    if ours != recorded:
        failed += 1
        if failed <= 10:
            print(f"{what}: here {ours!r}, recorded {recorded!r}")


def rows(folder, name):
    with open(folder / f"{name}.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def check_random(folder):
    for row in rows(folder, "random"):
        dice, op = random.Random(row["seed"]), row["op"]
        if op == "random":
            ours = [dice.random() for _ in row["out"]]
        elif op == "uniform":
            ours = [dice.uniform(*row["args"]) for _ in row["out"]]
        elif op == "shuffle":
            ours = list(range(row["n"]))
            dice.shuffle(ours)
        elif op == "sample":
            ours = [dice.sample(row["pop"], row["k"]) for _ in row["out"]]
        elif op == "choices_az":
            ours = "".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=row["k"]))
        else:
            continue
        expect(op, ours, row["out"])


def likeness(a, b):
    def tokens(text):
        text = re.sub(r"[\x80-\xff]", "", text)
        return set(re.sub(r"\W", " ", text).lower().split())

    def ratio(x, y):
        if x == y:
            return 100
        return int(round(100 * difflib.SequenceMatcher(None, x, y).ratio())) if x and y else 0

    a, b = tokens(a), tokens(b)
    if not a or not b:
        return 0
    both = " ".join(sorted(a & b))
    ours = f"{both} {' '.join(sorted(a - b))}".strip()
    theirs = f"{both} {' '.join(sorted(b - a))}".strip()
    return max(ratio(both, ours), ratio(both, theirs), ratio(ours, theirs))


class Colors:
    """The color words, in order: the engine's own list, whose effect the recordings pin down."""

    def __init__(self, source):
        block = re.search(r"const COLORS: \[&str; 102\] = \[(.*?)\];", source.read_text(encoding="utf-8"), re.S)
        self.words = re.findall(r'"(\w+)"', block.group(1))

    def normal(self, value):
        # For a pair, "in" asks for an equal element; for a text, for a part of it.
        return next((word for word in self.words if word in value), value)


class Shop:
    def __init__(self, folder, human):
        load = lambda name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        self.products, self.notes = {}, load("items_ins_v2")
        written = load("items_human_ins")
        self.nouns = {row["name"]: row["nouns"] for row in rows(folder, "nouns")}
        random.seed(0)
        self.prices = {}
        for product in load("items_shuffle"):
            self.products[product["asin"]] = product
            numbers = [float(Decimal(re.sub(r"[^\d.]", "", part))) for part in product["pricing"].split("$")[1:]]
            numbers = numbers or [100.0]
            self.prices[product["asin"]] = numbers[0] if len(numbers) == 1 else random.uniform(*numbers[:2])
            product["options"] = {
                name.lower(): [value["value"].strip().replace("/", " | ").lower() for value in values]
                for name, values in (product["customization_options"] or {}).items()
            }
        self.goals = []
        for asin, product in self.products.items():
            if human:
                for note in written.get(asin, []):
                    self.add(asin, note["instruction"].strip("."), note["instruction_attributes"],
                             [note["instruction_options"]])
            elif self.notes[asin].get("instruction"):
                names = sorted(product["options"])
                choices = [dict(zip(names, values))
                           for values in itertools.product(*(product["options"][name] for name in names))]
                self.add(asin, self.notes[asin]["instruction"], self.notes[asin]["instruction_attributes"], choices)
        random.seed(233)
        random.shuffle(self.goals)

    def add(self, asin, text, attributes, choices):
        ceilings = [10.0 * n for n in range(1, 100) if 10.0 * n > self.prices[asin]][:4]
        ceiling = max(random.sample(ceilings, 2)) if len(ceilings) >= 2 else 1000000
        price = f", and price lower than {ceiling:.2f} dollars" if len(ceilings) >= 2 else ""
        for chosen in choices:
            named = ", and ".join(f"{name}: {value}" for name, value in chosen.items()) if isinstance(chosen, dict) else ""
            self.goals.append({"asin": asin, "instruction_text": text + (" with " + named if named else "") + price,
                               "attributes": attributes, "price_upper": ceiling, "goal_options": chosen})

    def reward(self, goal, asin, options, colors):
        bought, wanted = self.products[asin], self.products[goal["asin"]]
        pieces = lambda product: {piece.strip() for piece in product["product_category"].split("›")}
        ours, theirs = self.nouns[bought["name"]], self.nouns[wanted["name"]]
        share = len(set(ours) & set(theirs)) / len(theirs) if theirs else 0.2
        same = bought["query"] == wanted["query"] or len(pieces(bought) & pieces(wanted)) >= 2 or share > 0.2
        kind = 0.0 if share == 0 else 0.1 if share < 0.1 else 1.0 if same else 0.5
        texts = [bought["name"].lower(), " ".join(bought["small_description"]).lower(),
                 bought["full_description"].lower()]
        known = self.notes[asin]["attributes"]
        met = sum(any(likeness(a, wish) > 85 for a in known) or any(wish in text for text in texts)
                  for wish in goal["attributes"])
        chosen = [colors.normal(value) for value in options.values()]
        wishes = goal["goal_options"].items() if isinstance(goal["goal_options"], dict) else goal["goal_options"]
        for wish in map(colors.normal, wishes):
            met += any(likeness(value, str(wish)) > 85 for value in chosen)
        met += self.prices[asin] <= goal["price_upper"]
        return met / (len(goal["attributes"]) + len(goal["goal_options"]) + 1) * kind


def main():
    folder, catalog = Path(sys.argv[1]), Path(sys.argv[2])
    colors = Colors(Path(__file__).parents[2] / "src/webshop/reward/color.rs")
    check_random(folder)
    for row in rows(folder, "likeness"):
        b = row["b"] if isinstance(row["b"], str) else row["norm"] or row["b_str"]
        expect(f"likeness of {row['a']!r} and {b!r}", likeness(row["a"], b), row["s"])
    for row in rows(folder, "colors"):
        expect(f"color of {row['v']!r}", colors.normal(row["v"]), row["out"])
    for row in rows(folder, "actions"):
        match = re.match(r"(.+)\[(.+)\]", row["action"])
        expect(f"action {row['action']!r}", match.groups() if match else (row["action"], None), (row["name"], row["arg"]))
    shops = {"goal": Shop(catalog, human=False), "human_goal": Shop(catalog, human=True)}
    for row in rows(folder, "prices"):
        expect(f"price of {row['asin']}", shops["goal"].prices[row["asin"]], row["price"])
    for key, name in (("goal", "goals_synthetic"), ("human_goal", "goals_human")):
        for row in rows(folder, name):
            for field, ours in shops[key].goals[row["i"]].items():
                expect(f"{field} of {key} {row['i']}", ours, row[field])
    for row in rows(folder, "rewards"):
        key = "human_goal" if "human_goal" in row else "goal"
        shop = shops[key]
        expect(f"reward of {row['asin']} for {key} {row[key]}",
               shop.reward(shop.goals[row[key]], row["asin"], row["options"], colors), row["reward"])
    print(f"{checked} answers checked, {failed} differ")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
