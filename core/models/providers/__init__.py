"""Model providers: Gemini, OpenAI-compatible servers, Anthropic, and a local model."""
