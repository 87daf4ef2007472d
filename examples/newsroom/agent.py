"""Team of agents: an editor that delegates to a reporter and to a writer.

The reporter has a tool that looks facts up.
"""

from google.adk.agents import LlmAgent

STORIES = {"harbour": "The harbour opens on Monday.", "museum": "The museum is closed until May."}


def look_up(topic: str) -> dict[str, str]:
    """Return the facts about a topic.

    Args:
        topic: one word.
    """
    return {"known": STORIES.get(topic.lower(), "Nothing is known about that.")}


reporter = LlmAgent(
    name="reporter",
    description="Looks up what is known about a topic.",
    instruction="Look the topic up, and tell in one sentence what is known.",
    tools=[look_up],
)

writer = LlmAgent(
    name="writer",
    description="Words a headline for what was found out.",
    instruction="Write one headline for what was found out so far.",
)

root_agent = LlmAgent(
    name="editor",
    description="Leads the newsroom.",
    instruction="Hand over to the reporter for facts and to the writer for headlines. Answer all else yourself.",
    sub_agents=[reporter, writer],
)
