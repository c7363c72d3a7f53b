"""asyncpg: what an application does with it. What is printed must be the same through onecopy and directly."""

import asyncio
import datetime
import decimal

import asyncpg


async def state(awaitable):
    try:
        await awaitable
        return "no error"
    except asyncpg.PostgresError as error:
        return error.sqlstate


async def main():
    db = await asyncpg.connect()
    print("user", await db.fetchval("SELECT current_user"))
    await db.execute("DROP TABLE IF EXISTS apg; CREATE TABLE apg (id int PRIMARY KEY, name text, at timestamptz, "
                     "amount numeric(12,2), tags text[])")
    insert = await db.prepare("INSERT INTO apg VALUES ($1, $2, $3, $4, $5)")
    at = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc)
    async with db.transaction():
        for number in range(10):
            await insert.fetch(number, f"n{number}", at, decimal.Decimal("1.25") * number, ["a", None])
    print("row", dict(await db.fetchrow("SELECT * FROM apg WHERE id = $1", 7)))
    print("unique", await state(insert.fetch(1, "x", None, None, None)))
    try:
        async with db.transaction():
            await db.execute("UPDATE apg SET name = 'lost'")
            async with db.transaction():
                await db.execute("SELECT 1 / 0")
    except asyncpg.PostgresError as error:
        print("failed", error.sqlstate)
    print("kept", await db.fetchval("SELECT count(*) FROM apg WHERE name = 'lost'"))
    print("copied", await db.copy_records_to_table("apg", records=[(n, "c", at, None, None) for n in range(100, 400)]))
    async with db.transaction(readonly=True, isolation="repeatable_read"):
        print("cursor", len([row async for row in db.cursor("SELECT * FROM apg ORDER BY id", prefetch=20)]))
    try:
        await db.execute("SELECT pg_sleep(30)", timeout=0.3)
    except asyncio.TimeoutError:
        print("cancelled by time-out")
    print("after", await db.fetchval("SELECT count(*) FROM apg"))
    await db.close()
    async with asyncpg.create_pool(min_size=2, max_size=4) as pool:
        async def add(number):
            async with pool.acquire() as one, one.transaction():
                await one.execute("UPDATE apg SET amount = coalesce(amount, 0) + 1 WHERE id = $1", number)
        await asyncio.gather(*(add(number) for number in range(20)))
        print("pool", await pool.fetchval("SELECT sum(amount) FROM apg"))


asyncio.run(main())
