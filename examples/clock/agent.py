"""Agent with tools of an MCP server: `pip install 'parley[mcp]' mcp-server-time`."""

import sys

from google.adk.agents import LlmAgent
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
from google.adk.tools.mcp_tool.mcp_session_manager import StdioServerParameters

server = StdioServerParameters(command=sys.executable, args=["-m", "mcp_server_time", "--local-timezone", "UTC"])

root_agent = LlmAgent(
    name="clock",
    description="Knows the time everywhere.",
    instruction="Answer questions about time and time zones. Use your tools; never guess.",
    tools=[McpToolset(connection_params=StdioConnectionParams(server_params=server, timeout=30))],
)
