"""Model providers: Gemini, OpenAI-compatible servers, Anthropic, a local model."""
