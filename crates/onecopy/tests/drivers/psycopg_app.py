"""psycopg 3: what an application does with it. What is printed must be the same through onecopy and directly."""

import threading
import time
from datetime import datetime, timezone
from decimal import Decimal
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb


def state(call):
    try:
        call()
        return "no error"
    except psycopg.Error as error:
        return error.sqlstate


with psycopg.connect("") as db:
    print("user", db.execute("SELECT current_user").fetchone(), "encrypted", db.pgconn.ssl_in_use)
    db.execute("DROP TABLE IF EXISTS psy; CREATE TABLE psy (id int PRIMARY KEY, name text, at timestamptz, "
               "amount numeric(12,2), tags text[], more jsonb, key uuid, raw bytea, ok bool)")
    db.commit()
    row = (1, "größe", datetime(2024, 2, 29, 12, tzinfo=timezone.utc), Decimal("12.50"), ["a", "b,c"],
           Jsonb({"x": [1, None]}), UUID(int=7), b"\x00\xff", True)
    insert = "INSERT INTO psy VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)"
    db.execute(insert, row)
    for number in range(2, 12):
        db.execute("INSERT INTO psy (id, name) VALUES (%s, %s)", (number, f"n{number}"), prepare=True)
    db.commit()
    print("row", db.execute("SELECT id, name, at AT TIME ZONE 'UTC', amount, tags, more, key, raw, ok FROM psy "
                            "WHERE id = %s", (1,), binary=True).fetchone())
    print("unique", state(lambda: db.execute(insert, row)), state(lambda: db.execute("SELECT 1")))
    db.rollback()
    with db.transaction():
        db.execute("UPDATE psy SET name = 'kept' WHERE id = 2")
        try:
            with db.transaction():
                db.execute("UPDATE psy SET name = 'lost' WHERE id = 3")
                raise psycopg.Rollback
        except psycopg.Rollback:
            pass
    print("savepoint", db.execute("SELECT id, name FROM psy WHERE id IN (2, 3) ORDER BY id").fetchall())
    with db.cursor() as cursor:
        with cursor.copy("COPY psy (id, name) FROM STDIN") as copy:
            for number in range(100, 600):
                copy.write_row((number, f"copied {number}"))
        with cursor.copy("COPY (SELECT id FROM psy WHERE id >= 595 ORDER BY id) TO STDOUT") as copy:
            print("copied", [row for row in copy.rows()])
        cursor.executemany("UPDATE psy SET amount = %s WHERE id = %s", [(number, number) for number in range(100, 200)])
    with db.pipeline():
        for number in range(3):
            db.execute("UPDATE psy SET amount = amount + 1 WHERE id = %s", (100 + number,))
    db.commit()
    print("sum", db.execute("SELECT count(*), sum(amount) FROM psy").fetchone())
    with db.cursor("scrolled") as cursor:
        cursor.itersize = 50
        print("cursor", sum(1 for _ in cursor.execute("SELECT * FROM psy ORDER BY id")))
    db.commit()
    threading.Thread(target=lambda: (time.sleep(0.3), db.cancel())).start()
    print("cancelled", state(lambda: db.execute("SELECT pg_sleep(30)")))
    db.rollback()
    print("after", db.execute("SELECT count(*) FROM psy").fetchone())

try:
    from sqlalchemy import ForeignKey, create_engine, func, select
    from sqlalchemy.exc import IntegrityError
    from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
except ImportError as error:
    print("skipped: sqlalchemy", error)
    raise SystemExit(0)


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "alchemy_author"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    books: Mapped[list["Book"]] = relationship(back_populates="author", cascade="all, delete-orphan")


class Book(Base):
    __tablename__ = "alchemy_book"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    author_id: Mapped[int] = mapped_column(ForeignKey("alchemy_author.id"))
    author: Mapped[Author] = relationship(back_populates="books")


engine = create_engine("postgresql+psycopg://", pool_size=2)
Base.metadata.drop_all(engine)
Base.metadata.create_all(engine)
with Session(engine) as session:
    session.add(Author(name="Ada", books=[Book(title="Notes"), Book(title="Letters")]))
    session.commit()
    session.add(Author(name="Ada"))
    try:
        session.commit()
    except IntegrityError as error:
        print("orm unique", error.orig.sqlstate)
        session.rollback()
    ada = session.scalars(select(Author).where(Author.name == "Ada")).one()
    print("orm", sorted(book.title for book in ada.books))
    ada.books.pop()
    session.commit()
    print("orm left", session.scalar(select(func.count()).select_from(Book)))
engine.dispose()
