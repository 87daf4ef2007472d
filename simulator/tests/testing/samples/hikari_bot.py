import os

import hikari

bot = hikari.GatewayBot(os.environ["DISCORD_TOKEN"])


@bot.listen()
async def answer(event: hikari.GuildMessageCreateEvent) -> None:
    if bot.get_me().id in (event.message.user_mentions_ids or ()):
        await event.message.respond(f"hello {event.author.mention}", reply=True)


bot.run()
