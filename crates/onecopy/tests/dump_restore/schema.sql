CREATE ROLE shop_owner;
CREATE ROLE clerk;
CREATE EXTENSION hstore;
CREATE EXTENSION pg_trgm;
CREATE EXTENSION citext;
CREATE DOMAIN email AS citext CHECK (VALUE ~ '@');
COMMENT ON DOMAIN email IS 'an address; with ''quotes'' and a ; in it';
CREATE SCHEMA shop AUTHORIZATION shop_owner;
CREATE SCHEMA audit;
GRANT USAGE ON SCHEMA shop TO clerk;
GRANT CREATE, USAGE ON SCHEMA public TO clerk;
CREATE TYPE shop.state AS ENUM ('new', 'paid', 'sent');
ALTER TYPE shop.state ADD VALUE 'lost' BEFORE 'sent';
CREATE TYPE shop.place AS (street text, town text, post_code char(5));
CREATE TYPE shop.span AS RANGE (subtype = float8, subtype_diff = float8mi);
CREATE COLLATION shop.german (provider = libc, locale = 'C.UTF-8');
CREATE SEQUENCE shop.numbers START 100 INCREMENT 10 MAXVALUE 100000 CYCLE;
SELECT setval('shop.numbers', 4320);

CREATE FUNCTION shop.gross(net numeric, rate numeric DEFAULT 0.19) RETURNS numeric
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT round(net * (1 + rate), 2)';
CREATE FUNCTION audit.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = audit, pg_temp AS $body$
BEGIN
    INSERT INTO entry (what, row_id) VALUES (TG_OP || ' ' || TG_TABLE_NAME, NEW.id);
    RETURN NEW;
END $body$;
CREATE AGGREGATE shop.product(numeric) (SFUNC = numeric_mul, STYPE = numeric, INITCOND = '1');
CREATE OPERATOR shop.<+> (LEFTARG = text, RIGHTARG = text, FUNCTION = textcat);
CREATE CAST (shop.state AS int) WITH INOUT AS ASSIGNMENT;

CREATE TABLE shop.customer (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL COLLATE shop.german,
    mail email UNIQUE,
    home shop.place,
    tags hstore DEFAULT '"a"=>"b"',
    words tsvector GENERATED ALWAYS AS (to_tsvector('simple', name)) STORED,
    born date,
    picture bytea,
    CONSTRAINT old_enough CHECK (born < '2020-01-01')
) WITH (fillfactor = 80);
CREATE TABLE shop.orders (
    id bigserial PRIMARY KEY,
    customer int NOT NULL REFERENCES shop.customer ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    at timestamptz NOT NULL DEFAULT now(),
    state shop.state DEFAULT 'new',
    items jsonb,
    prices numeric(10, 2)[],
    number int DEFAULT nextval('shop.numbers')
);
CREATE TABLE shop.line (order_id bigint, n smallint, net numeric, during shop.span,
    PRIMARY KEY (order_id, n), EXCLUDE USING gist (int8range(order_id, order_id, '[]') WITH &&, numrange(n, n, '[]') WITH &&));
ALTER TABLE shop.line ADD FOREIGN KEY (order_id) REFERENCES shop.orders NOT VALID;
CREATE TABLE audit.entry (id uuid DEFAULT gen_random_uuid(), what text, row_id bigint, at timestamptz DEFAULT clock_timestamp())
    PARTITION BY RANGE (at);
CREATE TABLE audit.entry_old PARTITION OF audit.entry FOR VALUES FROM (MINVALUE) TO ('2026-01-01');
CREATE TABLE audit.entry_new PARTITION OF audit.entry DEFAULT;
CREATE TABLE shop.base (id int, note text);
CREATE TABLE shop.special (extra float8) INHERITS (shop.base);

CREATE PROCEDURE shop.forget(days int) LANGUAGE sql AS 'DELETE FROM shop.orders WHERE at < now() - make_interval(days => $1)';
CREATE INDEX ON shop.customer USING gin (name gin_trgm_ops);
CREATE INDEX ON shop.customer USING gin (words);
CREATE UNIQUE INDEX lower_name ON shop.customer (lower(name), born) INCLUDE (mail) WHERE born IS NOT NULL;
CREATE INDEX ON audit.entry (at DESC NULLS LAST);
CREATE STATISTICS shop.correlated (dependencies, ndistinct) ON customer, state FROM shop.orders;

CREATE VIEW shop.unpaid WITH (security_barrier) AS SELECT * FROM shop.orders WHERE state = 'new' WITH LOCAL CHECK OPTION;
CREATE VIEW shop.big AS SELECT c.name, count(*) AS n FROM shop.unpaid u JOIN shop.customer c ON c.id = u.customer GROUP BY 1;
CREATE MATERIALIZED VIEW shop.turnover AS SELECT customer, count(*) AS orders, max(number) AS last FROM shop.orders GROUP BY customer;
CREATE UNIQUE INDEX ON shop.turnover (customer);
CREATE RULE keep AS ON DELETE TO shop.base DO INSTEAD NOTHING;
CREATE TRIGGER noting AFTER INSERT OR UPDATE ON shop.orders FOR EACH ROW EXECUTE FUNCTION audit.note();
CREATE TRIGGER old_noting AFTER UPDATE OF name ON shop.customer FOR EACH ROW WHEN (OLD.name <> NEW.name) EXECUTE FUNCTION audit.note();
ALTER TABLE shop.customer DISABLE TRIGGER old_noting;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON shop.line DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION audit.note();
DROP TRIGGER late ON shop.line;

ALTER TABLE shop.orders OWNER TO shop_owner;
ALTER TABLE shop.customer ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON shop.customer FOR SELECT TO clerk USING (name = current_user);
GRANT SELECT, INSERT (name, born) ON shop.customer TO clerk;
GRANT SELECT ON shop.orders TO clerk WITH GRANT OPTION;
ALTER DEFAULT PRIVILEGES IN SCHEMA shop GRANT SELECT ON TABLES TO clerk;
COMMENT ON TABLE shop.orders IS 'what was ordered';
COMMENT ON COLUMN shop.orders.state IS NULL;
COMMENT ON FUNCTION shop.gross(numeric, numeric) IS E'with \\ and \n';

INSERT INTO shop.customer (name, mail, home, tags, born, picture)
    SELECT 'Kunde ' || g, CASE WHEN g % 3 > 0 THEN g || '@example.org' END, ROW('Straße ' || g, E'Ort\t"' || g || '"', '12345')::shop.place,
           hstore('k', g::text), date '1950-01-01' + g, decode(md5(g::text), 'hex') FROM generate_series(1, 300) g;
INSERT INTO shop.orders (customer, at, state, items, prices)
    SELECT 1 + g % 300, timestamptz '2025-06-01' + g * interval '1 hour', (enum_range(NULL::shop.state))[1 + g % 4],
           jsonb_build_object('n', g, 't', E'\\N\\x'), ARRAY[g, NULL, g / 3.0] FROM generate_series(1, 2000) g;
INSERT INTO shop.line SELECT g, 1, g * 1.5, shop.span(g, g + 1) FROM generate_series(1, 200) g;
INSERT INTO shop.base VALUES (1, NULL), (2, E'a\\b\nc');
INSERT INTO shop.special VALUES (3, '', 'NaN'), (4, 'x', '-Infinity');
REFRESH MATERIALIZED VIEW shop.turnover;
