"""Records the original WebShop engine on our own catalog; the answers are the .jsonl files in recordings/.

    lens data webshop export --out CATALOG
    python record.py --engine WEBSHOP --anserini JAR --catalog CATALOG --out recordings

WEBSHOP is a clone of princeton-nlp/WebShop (64fa2a5), JAR the fat jar of Anserini 0.14.3 (inside the pyserini 0.17.0
package). Needs Java 11 or newer and: flask==2.1.2 werkzeug==2.1.2 beautifulsoup4==4.11.1 thefuzz==0.19.0 numpy tqdm
pyjnius. python-Levenshtein must not be installed: rewards would differ. Two parts of the original are replaced: its
statistical tagger by the catalog's own noun table, and pyserini by a direct call of the same Java class.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import types

BUTTONS = ["click[buy now]", "click[back to search]", "click[< prev]", "click[next >]", "click[nothing]", "search[]",
           "look around", "Click[search]", "click[search]"]

# Sessions that try what no sensible shopper would. "%first" opens the first product on the page.
SCRIPTS = [
    ["search[<c> grocery]", "click[next >]", "click[< prev]", "click[next >]", "search[tea]"],
    ["search[<q> table lamps]", "click[next >]", "click[next >]"],
    ["search[<a> sugar free]"],
    ["search[<c>]"],
    ["search[the of and]", "click[next >]", "click[< prev]", "click[back to search]"],
    ["search[search_results lamp]", "%first", "click[< prev]", "click[next >]", "%first", "click[features]",
     "click[< prev]"],
    ["search[item_page lamp]", "%first", "click[features]", "click[< prev]", "click[< prev]"],
    ["search[lamp  double  blank]", "%first", "click[< prev]", "%first", "search[from an item page]", "click[next >]"],
    ["search[shoes]", "%first", "click[buy now]", "search[lamp after the end]", "%first"],
    ["SEARCH[x]", " click[search]", "search[a\nb]", "search[a [b] c]", "search[x]]", "click[back to search]",
     "search[ ]", "search[\u2605 \U0001F455 5\u00a0stars \u00bc cr\u00e8me]"],
]

# Numbers (modulo 100) of the products in which the generator plants odd cases, without the very long description.
ODD = [3, 7, 13, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 79, 83, 89, 97]

QUERIES = ["lamp", "the of and", "women's running shoes", "zzzunknown", "table lamps with oak base", "\u2605 stars",
           "5 stars", "100% happy", "cr\u00e8me", "print_04", '12" x 18"', "color: black", "parameters:upper",
           "a.b 1,000 x_y"]

SCRIPTURES = [
    "Don't O'Neil's WOMEN'S \u2019s caf\u00e9s na\u00efve 3.5mm 1,000.50 a:b 5:3 x_y _ __a \u2605\u2122\u2764\ufe0f"
    "\U0001F455 \u00bc \uff9f \u4e2d\u6587\u5b57 \u3072\u3089 \u30ab\u30bf\u30ab\u30ca \ud55c\uad6d\uc5b4 "
    "generalizations relational ponies caresses hopping falling filing agreed",
    "\U0001F1FA\U0001F1F8\U0001F1E9\U0001F1EA 1\ufe0f\u20e3 \u00b5m \u00ba \u00b2 \u2126 \u0301a a\u0301 "
    "\u0660\u0661 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 word\u200bjoin soft\u00adhyphen \ufb01nd \u1e9eharp "
    "\u0130stanbul",
]

ACTIONS = ["search[red shoes]", "click[Buy Now]", "search[]", "search", "click[]", "search[a [b] c]", " click[x]",
           "click[x] trailing", "search[a\nb]", "foo[bar][baz]", "search[x]]", "[x]", "search[ ]", "click[next >]\n",
           "", "a[b][]", "a[]b]", "a[[]]", "[[x]", "a[\u00e9]", "x[a]\r]", "\u2028a[b]"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("engine", "anserini", "catalog", "out"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--all", action="store_true", help="record fifty times as much, to compare and throw away")
    return parser.parse_args()


def stand_in(name, **content):
    module = types.ModuleType(name)
    module.__dict__.update(content)
    sys.modules[name] = module
    return module


def prepare(args, index):
    """Puts the catalog where the engine looks for it, and stand-ins in place of what it imports and does not need."""
    data = os.path.join(args.engine, "data")
    os.makedirs(data, exist_ok=True)
    for ours, theirs in [("items_shuffle", "items_shuffle_1000"), ("items_ins_v2", "items_ins_v2_1000"),
                         ("items_human_ins", "items_human_ins")]:
        shutil.copy(f"{args.catalog}/{ours}.json", f"{data}/{theirs}.json")
    nouns = {}
    with open(f"{args.catalog}/nouns.jsonl", encoding="utf-8") as table:
        for line in table:
            row = json.loads(line)
            nouns[row["name"]] = row["nouns"]
    tagged = lambda title: [types.SimpleNamespace(text=noun, pos_="NOUN") for noun in nouns[title]]
    stand_in("spacy", load=lambda name: tagged)
    stand_in("torch"), stand_in("cleantext"), stand_in("rank_bm25", BM25Okapi=None)
    stand_in("rich", print=lambda *texts, **options: None)
    stand_in("gym", Env=object)
    stand_in("web_agent_site.envs", __path__=[os.path.join(args.engine, "web_agent_site/envs")])
    import jnius_config
    jnius_config.add_options("-Xmx1g")
    jnius_config.set_classpath(args.anserini)

    class LuceneSearcher:
        def __init__(self, folder):
            from jnius import autoclass
            self.searcher = autoclass("io.anserini.search.SimpleSearcher")(index)

        def search(self, query, k):
            return list(self.searcher.search(query, k))

        def doc(self, number):
            raw = self.searcher.documentRaw(number)
            return types.SimpleNamespace(raw=lambda: raw)

    stand_in("pyserini"), stand_in("pyserini.search"), stand_in("pyserini.search.lucene", LuceneSearcher=LuceneSearcher)
    sys.path.insert(0, args.engine)


def build_index(args, index):
    from web_agent_site.engine.engine import load_products
    products, *_ = load_products(filepath=f"{args.engine}/data/items_shuffle_1000.json", human_goals=False)
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/documents.jsonl", "w", encoding="utf-8") as documents:
            for product in products:
                options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product["options"].items())
                texts = [product["Title"], product["Description"], product["BulletPoints"][0], options]
                row = {"id": product["asin"], "contents": " ".join(texts).lower(), "product": product}
                documents.write(json.dumps(row) + "\n")
        subprocess.run(["java", "-Xmx1g", "-cp", args.anserini, "io.anserini.index.IndexCollection", "-collection",
                        "JsonCollection", "-input", folder, "-index", index, "-generator",
                        "DefaultLuceneDocumentGenerator", "-threads", "1", "-storePositions", "-storeDocvectors",
                        "-storeRaw"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wander(env, goal, dice, steps):
    words = env.server.goals[goal]["instruction_text"].split()
    for _ in range(steps):
        offered = env.get_available_actions()
        clicks = [f"click[{text}]" for text in offered["clickables"] if text != "buy now"]
        if not clicks:
            return
        chance = dice.random()
        if offered["has_search_bar"] or chance < 0.05:
            yield "search[" + " ".join(dice.sample(words, min(len(words), dice.randint(1, 8)))) + "]"
        elif chance < 0.12:
            yield dice.choice(BUTTONS[1:])
        elif chance < 0.2:
            yield dice.choice(BUTTONS)
        else:
            yield dice.choice(clicks)


def buy_the_goal(env, goal, dice, steps):
    wanted = env.server.goals[goal]
    title = env.server.product_item_dict[wanted["asin"]]["Title"]
    yield "search[" + (title.replace("[", "").replace("]", "") or wanted["query"]) + "]"
    for _ in range(5):
        if wanted["asin"].lower() in env.get_available_actions()["clickables"]:
            break
        yield "click[next >]"
    yield f"click[{wanted['asin'].lower()}]"
    for value in wanted["goal_options"].values():
        yield f"click[{value}]"
    yield from ["click[features]", "click[< prev]", "click[buy now]"]


def look_at(product):
    """A visit to every page and the last options of one product, found by its search term."""
    def visit(env, goal, dice, steps):
        shown = env.server.all_products[product]
        link = f"click[{shown['asin'].lower()}]"
        yield f"search[<q> {shown['query']}]"
        for _ in range(9):
            if shown["asin"].lower() in env.get_available_actions()["clickables"]:
                break
            yield "click[next >]"
        yield link
        for page in ["description", "features", "reviews", "attributes"][: 4 if env.server.show_attrs else 2]:
            yield from [f"click[{page}]", "click[< prev]"]
        for values in shown["options"].values():
            yield from [f"click[{value}]" for value in values[-2:]]
        if shown["options"]:
            yield from ["click[reviews]", "click[< prev]", "click[< prev]", link]
            yield from [f"click[{values[-1]}]" for values in shown["options"].values()]
        yield "click[buy now]"
    visit.__name__ = "look"
    return visit


def follow_a_script(env, goal, dice, steps):
    for action in SCRIPTS[goal % len(SCRIPTS)]:
        if action == "%first":
            links = [text for text in env.get_available_actions()["clickables"] if re.fullmatch(r"lw[0-9a-z]{8}", text)]
            action = f"click[{links[0]}]"
        yield action


def transcript(env, goal, policy, dice, mode, steps=12):
    env.reset(session=goal)
    rows = [{"obs": env.observation, "avail": env.get_available_actions(), "instruction": env.get_instruction_text(),
             "url": env.state["url"]}]
    for action in policy(env, goal, dice, steps):
        try:
            page, reward, done, _ = env.step(action)
        except Exception as crash:
            rows.append({"action": action, "exception": f"{type(crash).__name__}: {crash}"})
            break
        rows.append({"action": action, "obs": page, "reward": reward, "done": done,
                     "avail": env.get_available_actions(), "url": env.state["url"]})
        if done and policy is not follow_a_script:
            break
    return {"mode": mode, "session": goal, "goal": goal, "policy": policy.__name__, "steps": rows}


def record_pages(make, dice, save, scale):
    odd = [100 * hundred + place for hundred in range(10 if scale > 1 else 1) for place in ODD]
    for mode in ("text", "text_rich"):
        env = make(mode)
        rows = []
        for at in range(2 * scale):
            rows.append(transcript(env, at * 7 + (mode == "text"), wander, random.Random(at), mode))
            rows.append(transcript(env, 1000 + at * 11, buy_the_goal, dice, mode))
        shown = odd if scale > 1 else odd[(mode == "text")::2]
        rows += [transcript(env, 3000 + at, look_at(product), dice, mode) for at, product in enumerate(shown)]
        if scale > 1 or mode == "text_rich":
            rows += [transcript(env, 4000 + at, follow_a_script, dice, mode) for at in range(len(SCRIPTS))]
        save("pages_" + mode, rows)
    env = make("text", show_attrs=True)
    shown = odd if scale > 1 else [3, 59]
    save("pages_attrs",
         [transcript(env, 3000 + at, look_at(product), dice, "text+attrs") for at, product in enumerate(shown)])


def goal_row(number, goal, keys):
    return {"i": number, **{key: goal[key] for key in keys}}


def record_shop(make, dice, save, scale):
    from web_agent_site.engine.goal import get_reward
    shop, human = make("text").server, make("text", human_goals=True).server
    every = lambda rows, step: rows[:: 1 if scale > 1 else step]
    save("prices", every([{"asin": asin, "price": price} for asin, price in shop.product_prices.items()], 10))
    keys = ["asin", "instruction_text", "attributes", "price_upper", "goal_options", "weight", "query"]
    save("goals_synthetic", every([goal_row(at, goal, keys) for at, goal in enumerate(shop.goals)], 60))
    save("goals_human",
         every([goal_row(at, goal, keys + ["product_category"]) for at, goal in enumerate(human.goals)], 3))
    alike = {}
    for product in shop.all_products:
        alike.setdefault(product["query"], []).append(product)
    rows = []
    for server, key, count in ((shop, "goal", 160 * scale), (human, "human_goal", 40 * scale)):
        for _ in range(count):
            number = dice.randrange(len(server.goals))
            goal = server.goals[number]
            own = server.product_item_dict[goal["asin"]]
            bought = dice.choice([own, own, dice.choice(alike[own["query"]]), dice.choice(server.all_products)])
            bought = server.product_item_dict[bought["asin"]]
            options = {name: dice.choice(values) for name, values in bought["options"].items() if dice.random() < 0.8}
            if bought is own and isinstance(goal["goal_options"], dict) and dice.random() < 0.6:
                options = dict(goal["goal_options"])
            price = server.product_prices[bought["asin"]]
            reward, info = get_reward(bought, goal, price=price, options=options, verbose=True)
            rows.append({key: number, "asin": bought["asin"], "options": options, "price": price, "reward": reward,
                         "info": info})
    save("rewards", rows)
    return shop


def record_words(shop, dice, save, scale):
    from jnius import autoclass
    from thefuzz import fuzz
    from web_agent_site.engine.engine import parse_action
    from web_agent_site.engine.normalize import normalize_color
    products = shop.all_products
    queries = QUERIES + [dice.choice(shop.goals)["instruction_text"].lower() for _ in range(16 * scale)]
    queries += [dice.choice(products)["Title"].lower() or "lamp" for _ in range(10 * scale)]
    hits = lambda query: [[hit.docid, round(hit.score, 6)] for hit in shop.search_engine.search(query, k=50)]
    save("searches", [{"q": query, "hits": hits(query)} for query in queries])
    attributes = sorted({attribute for product in products for attribute in product["Attributes"]})
    pairs = sorted({(name, value) for product in products for name, values in product["options"].items()
                    for value in values})
    rows = []
    for _ in range(120 * scale):
        a, b = dice.choice(attributes), dice.choice(attributes)
        rows.append({"a": a, "b": b, "s": fuzz.token_set_ratio(a, b)})
        a, b = normalize_color(dice.choice(pairs)[1]), dice.choice(pairs)
        color = normalize_color(b)
        rows.append({"a": a, "b": list(b), "tuple": True, "b_str": str(b),
                     "norm": color if isinstance(color, str) else None, "s": fuzz.token_set_ratio(a, color)})
    for _ in range(24 * scale):
        a, b = (" ".join(dice.choice(products)["Title"] for _ in range(dice.randint(1, 3))) for _ in range(2))
        rows.append({"a": a, "b": b, "s": fuzz.token_set_ratio(a, b)})
    save("likeness", rows)
    save("colors", [{"v": value, "out": normalize_color(value)} for value in sorted({value for _, value in pairs})])
    save("actions", [dict(zip(("action", "name", "arg"), (action, *parse_action(action)))) for action in ACTIONS])
    analyze = autoclass("io.anserini.analysis.AnalyzerUtils").analyze
    analyzer = autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    texts = queries + [product["Title"] for product in products[:: 1 if scale > 1 else 40]]
    texts += [products[at]["BulletPoints"][0] for at in ODD] + SCRIPTURES
    save("analyzer", [{"text": text, "tokens": list(analyze(analyzer, text).toArray())} for text in texts])


def record_random(save):
    import numpy
    rows = []
    for seed in (0, 7, 233, 99991, 2**40 + 7):
        fresh = lambda: random.Random(seed)
        dice = fresh()
        rows.append({"op": "random", "seed": seed, "out": [dice.random() for _ in range(4)]})
        dice = fresh()
        rows.append({"op": "uniform", "seed": seed, "args": [5.25, 9.75],
                     "out": [dice.uniform(5.25, 9.75) for _ in range(4)]})
        items = list(range(700 if seed == 7 else 40))
        fresh().shuffle(items)
        rows.append({"op": "shuffle", "seed": seed, "n": len(items), "out": items})
        dice = fresh()
        rows.append({"op": "sample", "seed": seed, "pop": [10, 20, 30], "k": 2,
                     "out": [dice.sample([10, 20, 30], 2) for _ in range(6)]})
        letters = "".join(fresh().choices("abcdefghijklmnopqrstuvwxyz", k=10))
        rows.append({"op": "choices_az", "seed": seed, "k": 10, "out": letters})
        if seed < 2**32:
            drawn = numpy.random.RandomState(seed).choice(range(500, 900), 8, replace=False)
            rows.append({"op": "numpy_choice_noreplace", "seed": seed, "lo": 500, "hi": 900, "size": 8,
                         "out": [int(number) for number in drawn]})
    save("random", rows)


def main():
    args = arguments()
    os.makedirs(args.out, exist_ok=True)
    scale = 50 if args.all else 1
    dice = random.Random(7)

    def save(name, rows):
        with open(f"{args.out}/{name}.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        print(f"{name}: {len(rows)} lines")

    with tempfile.TemporaryDirectory() as index:
        prepare(args, index)
        build_index(args, index)
        from web_agent_site.envs.web_agent_text_env import WebAgentTextEnv

        def make(mode, human_goals=False, show_attrs=False):
            random.seed(0)
            return WebAgentTextEnv(observation_mode=mode, num_products=1000, human_goals=human_goals,
                                   show_attrs=show_attrs)

        record_pages(make, dice, save, scale)
        shop = record_shop(make, dice, save, scale)
        record_words(shop, dice, save, scale)
        record_random(save)


if __name__ == "__main__":
    main()
