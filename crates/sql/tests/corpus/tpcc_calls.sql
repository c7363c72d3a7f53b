CREATE TABLE warehouse (
    w_id int PRIMARY KEY, w_name varchar(10), w_tax numeric(4, 4), w_ytd numeric(12, 2)
);
CREATE TABLE district (
    d_w_id int REFERENCES warehouse, d_id int, d_name varchar(10), d_tax numeric(4, 4), d_ytd numeric(12, 2),
    d_next_o_id int, PRIMARY KEY (d_w_id, d_id)
);
CREATE TABLE customer (
    c_w_id int, c_d_id int, c_id int, c_first varchar(16), c_last varchar(16), c_credit char(2),
    c_discount numeric(4, 4), c_balance numeric(12, 2), c_ytd_payment numeric(12, 2), c_payment_cnt int,
    c_delivery_cnt int, c_data varchar(500),
    PRIMARY KEY (c_w_id, c_d_id, c_id), FOREIGN KEY (c_w_id, c_d_id) REFERENCES district
);
CREATE INDEX customer_by_name ON customer (c_w_id, c_d_id, c_last, c_first);
CREATE TABLE history (
    h_c_id int, h_c_d_id int, h_c_w_id int, h_d_id int, h_w_id int, h_date timestamp, h_amount numeric(6, 2),
    h_data varchar(24)
);
CREATE TABLE item (i_id int PRIMARY KEY, i_name varchar(24), i_price numeric(5, 2), i_data varchar(50));
CREATE TABLE stock (
    s_w_id int, s_i_id int, s_quantity int, s_ytd int, s_order_cnt int, s_remote_cnt int, s_dist_01 char(24),
    PRIMARY KEY (s_w_id, s_i_id)
);
CREATE TABLE orders (
    o_w_id int, o_d_id int, o_id int, o_c_id int, o_carrier_id int, o_ol_cnt int, o_all_local int,
    o_entry_d timestamp, PRIMARY KEY (o_w_id, o_d_id, o_id)
);
CREATE INDEX orders_by_customer ON orders (o_w_id, o_d_id, o_c_id, o_id);
CREATE TABLE new_order (no_w_id int, no_d_id int, no_o_id int, PRIMARY KEY (no_w_id, no_d_id, no_o_id));
CREATE TABLE order_line (
    ol_w_id int, ol_d_id int, ol_o_id int, ol_number int, ol_i_id int, ol_supply_w_id int,
    ol_delivery_d timestamp, ol_quantity int, ol_amount numeric(6, 2), ol_dist_info char(24),
    PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)
);

CREATE PROCEDURE new_order(
    p_w_id int, p_d_id int, p_c_id int, p_i_ids int[], p_supply_w_ids int[], p_quantities int[], p_at timestamp
) LANGUAGE plpgsql AS $$
DECLARE
    v_o_id int;
    v_tax numeric;
    v_discount numeric(4, 4);
    v_price item.i_price%TYPE;
    v_local int := 1;
    v_dist char(24);
BEGIN
    SELECT c_discount INTO v_discount FROM customer
        WHERE c_w_id = p_w_id AND c_d_id = p_d_id AND c_id = p_c_id;
    UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = p_w_id AND d_id = p_d_id
        RETURNING d_next_o_id - 1, d_tax INTO v_o_id, v_tax;
    FOR i IN 1 .. array_length(p_i_ids, 1) LOOP
        IF p_supply_w_ids[i] <> p_w_id THEN
            v_local := 0;
        END IF;
    END LOOP;
    INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
        VALUES (p_w_id, p_d_id, v_o_id, p_c_id, p_at, array_length(p_i_ids, 1), v_local);
    INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES (p_w_id, p_d_id, v_o_id);
    FOR i IN 1 .. array_length(p_i_ids, 1) LOOP
        SELECT i_price INTO v_price FROM item WHERE i_id = p_i_ids[i];
        IF NOT FOUND THEN
            RAISE EXCEPTION 'item number is not valid';
        END IF;
        UPDATE stock SET
            s_quantity = CASE WHEN s_quantity - p_quantities[i] >= 10 THEN s_quantity - p_quantities[i]
                ELSE s_quantity - p_quantities[i] + 91 END,
            s_ytd = s_ytd + p_quantities[i], s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + CASE WHEN s_w_id = p_w_id THEN 0 ELSE 1 END
            WHERE s_w_id = p_supply_w_ids[i] AND s_i_id = p_i_ids[i] RETURNING s_dist_01 INTO v_dist;
        INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity,
                ol_amount, ol_dist_info)
            VALUES (p_w_id, p_d_id, v_o_id, i, p_i_ids[i], p_supply_w_ids[i], p_quantities[i],
                p_quantities[i] * v_price * (1 + v_tax) * (1 - v_discount), v_dist);
    END LOOP;
END $$;

CREATE PROCEDURE payment(
    p_w_id int, p_d_id int, p_c_w_id int, p_c_d_id int, p_c_id int, p_c_last text, p_amount numeric, p_at timestamp
) LANGUAGE plpgsql AS $$
DECLARE
    v_c_id int := p_c_id;
    v_w_name varchar(10);
    v_d_name varchar(10);
    v_credit char(2);
BEGIN
    UPDATE warehouse SET w_ytd = w_ytd + p_amount WHERE w_id = p_w_id RETURNING w_name INTO v_w_name;
    UPDATE district SET d_ytd = d_ytd + p_amount WHERE d_w_id = p_w_id AND d_id = p_d_id
        RETURNING d_name INTO v_d_name;
    IF p_c_id IS NULL THEN
        v_c_id := (SELECT c_id FROM customer
            WHERE c_w_id = p_c_w_id AND c_d_id = p_c_d_id AND c_last = p_c_last ORDER BY c_first LIMIT 1);
    END IF;
    UPDATE customer SET c_balance = c_balance - p_amount, c_ytd_payment = c_ytd_payment + p_amount,
            c_payment_cnt = c_payment_cnt + 1
        WHERE c_w_id = p_c_w_id AND c_d_id = p_c_d_id AND c_id = v_c_id RETURNING c_credit INTO v_credit;
    IF v_credit = 'BC' THEN
        UPDATE customer SET c_data = left(p_amount::text || c_data, 500)
            WHERE c_w_id = p_c_w_id AND c_d_id = p_c_d_id AND c_id = v_c_id;
    END IF;
    INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
        VALUES (v_c_id, p_c_d_id, p_c_w_id, p_d_id, p_w_id, p_at, p_amount, v_w_name || ' ' || v_d_name);
END $$;

CREATE PROCEDURE delivery(p_w_id int, p_carrier_id int, p_at timestamp) LANGUAGE plpgsql AS $$
DECLARE
    v_o_id int;
    v_c_id int;
    v_total numeric;
BEGIN
    FOR v_d_id IN 1 .. 10 LOOP
        SELECT no_o_id INTO v_o_id FROM new_order WHERE no_w_id = p_w_id AND no_d_id = v_d_id
            ORDER BY no_o_id LIMIT 1;
        CONTINUE WHEN NOT FOUND;
        DELETE FROM new_order WHERE no_w_id = p_w_id AND no_d_id = v_d_id AND no_o_id = v_o_id;
        UPDATE orders SET o_carrier_id = p_carrier_id
            WHERE o_w_id = p_w_id AND o_d_id = v_d_id AND o_id = v_o_id RETURNING o_c_id INTO v_c_id;
        UPDATE order_line SET ol_delivery_d = p_at
            WHERE ol_w_id = p_w_id AND ol_d_id = v_d_id AND ol_o_id = v_o_id;
        SELECT sum(ol_amount) INTO v_total FROM order_line
            WHERE ol_w_id = p_w_id AND ol_d_id = v_d_id AND ol_o_id = v_o_id;
        UPDATE customer SET c_balance = c_balance + v_total, c_delivery_cnt = c_delivery_cnt + 1
            WHERE c_w_id = p_w_id AND c_d_id = v_d_id AND c_id = v_c_id;
    END LOOP;
END $$;

CREATE PROCEDURE order_status(
    p_w_id int, p_d_id int, p_c_id int, p_c_last text, INOUT p_o_id int, INOUT p_lines int
) LANGUAGE plpgsql AS $$
DECLARE
    v_c_id int := p_c_id;
BEGIN
    IF v_c_id IS NULL THEN
        SELECT c_id INTO v_c_id FROM customer WHERE c_w_id = p_w_id AND c_d_id = p_d_id AND c_last = p_c_last
            ORDER BY c_first LIMIT 1;
    END IF;
    SELECT o_id INTO p_o_id FROM orders WHERE o_w_id = p_w_id AND o_d_id = p_d_id AND o_c_id = v_c_id
        ORDER BY o_id DESC LIMIT 1;
    SELECT count(*) INTO p_lines FROM order_line
        WHERE ol_w_id = p_w_id AND ol_d_id = p_d_id AND ol_o_id = p_o_id;
END $$;

CREATE PROCEDURE stock_level(p_w_id int, p_d_id int, p_threshold int, INOUT p_low bigint) LANGUAGE plpgsql AS $$
DECLARE
    v_next int;
BEGIN
    SELECT d_next_o_id INTO v_next FROM district WHERE d_w_id = p_w_id AND d_id = p_d_id;
    SELECT count(DISTINCT s_i_id) INTO p_low FROM order_line
        JOIN stock ON s_w_id = p_w_id AND s_i_id = ol_i_id
        WHERE ol_w_id = p_w_id AND ol_d_id = p_d_id AND ol_o_id BETWEEN v_next - 20 AND v_next - 1
            AND s_quantity < p_threshold;
END $$;
