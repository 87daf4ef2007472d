"""Rate limits of Slack's Web API methods, per app and workspace.

Slack: docs.slack.dev/apis/web-api/rate-limits. The limits are per minute; half a second is added for network delays.
"""

from channels.rate_limits.limiter import Window

TIER_2 = Window(calls=20, seconds=60.5)
TIER_3 = Window(calls=50, seconds=60.5)
TIER_4 = Window(calls=100, seconds=60.5)

#: Methods that read messages. Slack: Tier 3, but one call a minute, and 15 messages a call, for an app that is
#: distributed commercially and is not in the Marketplace.
HISTORY = Window(calls=50, seconds=60.5)

#: Slack: of `auth.test`, "hundreds of calls a minute".
AUTH_TEST = Window(calls=100, seconds=60.5)
