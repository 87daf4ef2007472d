// Addresses of the simulators for an unmodified bot: Node loads this file before the bot's own code.
const http = require('node:http');
const https = require('node:https');
const { createRequire } = require('node:module');
const { join } = require('node:path');

const { CHATRIG_SLACK_API_URL: slack, CHATRIG_DISCORD_API_URL: discord } = process.env;

// @slack/web-api calls slack.com by `fetch` (8.x), or by `https.request` (7.x, axios).
if (slack) {
  const target = new URL(slack);
  const { fetch } = globalThis;
  globalThis.fetch = (input, ...rest) => {
    const url = typeof input === 'string' || input instanceof URL ? new URL(input) : null;
    return fetch(url?.hostname === 'slack.com' ? new URL(`${url.pathname}${url.search}`, target.origin) : input, ...rest);
  };
  const { request } = https;
  https.request = (options, ...rest) => {
    if ((options.hostname ?? options.host) !== 'slack.com') return request(options, ...rest);
    const { hostname, port } = target;
    return http.request({ ...options, protocol: 'http:', host: hostname, hostname, port, agent: undefined }, ...rest);
  };
}

// discord.js reads the defaults of @discordjs/rest for each client.
if (discord) {
  const fromBot = createRequire(process.argv[1] ?? join(process.cwd(), 'bot.js'));
  for (const path of ['@discordjs/rest', 'discord.js']) {
    try {
      const found = path === 'discord.js' ? createRequire(fromBot.resolve(path))('@discordjs/rest') : fromBot(path);
      found.DefaultRestOptions.api = discord.replace(/\/v\d+\/?$/, '');
    } catch (error) {
      if (error.code !== 'MODULE_NOT_FOUND') throw error;
    }
  }
}
