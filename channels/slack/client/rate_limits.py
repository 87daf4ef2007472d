"""Slack's tiers: what a method may be called, each by itself, by an app in a workspace.

Slack: docs.slack.dev/apis/web-api/rate-limits. So many calls a minute; with half a second on top for what the network
delays.
"""

from channels.rate_limits.limiter import Window

TIER_2 = Window(calls=20, seconds=60.5)
TIER_3 = Window(calls=50, seconds=60.5)
TIER_4 = Window(calls=100, seconds=60.5)

#: Of what was said before. Slack: Tier 3, but once a minute, and 15 messages at a time, for an app that is distributed
#: commercially and is not in the Marketplace.
PAST = Window(calls=50, seconds=60.5)

#: Slack: of `auth.test`, "hundreds of calls a minute".
PROOFS = Window(calls=100, seconds=60.5)
