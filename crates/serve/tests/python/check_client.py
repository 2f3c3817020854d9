"""Checks a running server with the openenv package's own code: its client, its collector and its graders.

usage: check_client.py URL COMMAND...   (the commands are played in the first task of the training split)
Prints one line per check; exit status 1 if one fails.
"""
import asyncio
import json
import sys
import types

from openenv.core.generic_client import GenericEnvClient
from openenv.core.mcp_client import MCPToolClient
from openenv.validation.graders.runtime import ObservationSchemaGrader, RewardWellFormedGrader, StateContractGrader
from openenv.validation.runtime.collector import collect_runtime_evidence
from openenv.validation.runtime.contracts import RuntimePlan

failures = 0


def check(name, passed, note=""):
    global failures
    failures += not passed
    print("pass" if passed else "FAIL", name, "" if passed else str(note)[:300])


def grade(url, commands):
    plan = RuntimePlan.model_validate({
        "plan_schema_version": "1",
        "reset": {"episode_id": "graded", "seed": 7, "options": {"index": 0}},
        "actions": [{"command": command} for command in commands],
    })
    evidence = collect_runtime_evidence(url, plan, episode_timeout_s=60.0)
    check("collector", not evidence.failure_reason, evidence.failure_reason)
    reward = types.SimpleNamespace(range=(0.0, 1.0))
    subject = types.SimpleNamespace(runtime_evidence=evidence, manifest=types.SimpleNamespace(reward=reward))
    for grader in (RewardWellFormedGrader(), ObservationSchemaGrader(), StateContractGrader()):
        result = grader.run(subject)
        check(result.check_id, result.status.value == "pass", result.evidence)


async def converse(url, commands):
    async with GenericEnvClient(base_url=url) as first, GenericEnvClient(base_url=url) as second:
        result = await first.reset(seed=1, episode_id="first", index=0)
        check("reset", isinstance(result.observation, dict) and not result.done, result)
        state = await first.state()
        check("state", (state["episode_id"], state["step_count"]) == ("first", 0), state)
        for command in commands:
            result = await first.step({"command": command})
        state = await first.state()
        check("steps", state["step_count"] == len(commands), state)
        await second.reset(episode_id="second", index=1)
        check("two sessions", (await second.state())["episode_id"] == "second")
        # The state's token is restored by the package's own client, in another session, by a standard reset.
        restored = await second.reset(injected_state=state["snapshot"])
        check("injected state", restored.observation["text"] == result.observation["text"], restored)
        check("confirmed", restored.observation["metadata"].get("restored") is True, restored)
        try:
            await second.step({"command": 5})
            check("refusal", False, "a number was taken for a command")
        except RuntimeError as error:
            check("refusal", "VALIDATION_ERROR" in str(error), error)
        check("survives", (await second.state())["step_count"] == len(commands))
    # The tool client makes its session over HTTP and attaches a socket to it.
    async with MCPToolClient(base_url=url) as tools:
        result = await tools.reset(episode_id="tools", index=0)
        check("tool client", not result.done and (await tools.state()).episode_id == "tools", result)
        check("no tools", await tools.list_tools() == [])


if __name__ == "__main__":
    grade(sys.argv[1], sys.argv[2:])
    asyncio.run(converse(sys.argv[1], sys.argv[2:]))
    print(json.dumps({"failures": failures}))
    sys.exit(1 if failures else 0)
