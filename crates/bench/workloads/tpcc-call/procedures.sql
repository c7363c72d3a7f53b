-- TPC-C: the five transactions as procedures and functions, each a whole transaction of one statement.
--
-- Everything that decides which rows are written is an argument or follows from one by an equality: no clock, no random
-- number. An unknown item ends New-Order with the SQLSTATE TPC01, which the specification wants for one in a hundred.

CREATE PROCEDURE new_order(
    p_w_id int, p_d_id int, p_c_id int, p_i_ids int[], p_supply_w_ids int[], p_quantities int[], p_at timestamptz,
    OUT p_o_id int, OUT p_total numeric
)
LANGUAGE plpgsql AS $$
DECLARE
    v_discount numeric;
    v_last text;
    v_credit text;
    v_w_tax numeric;
    v_d_tax numeric;
    v_count int := array_length(p_i_ids, 1);
    v_all_local int := CASE WHEN p_w_id = ALL (p_supply_w_ids) THEN 1 ELSE 0 END;
    v_price numeric;
    v_quantity int;
    v_dist text;
    v_amount numeric;
    v_sum numeric := 0;
BEGIN
    SELECT c_discount, c_last, c_credit INTO v_discount, v_last, v_credit
    FROM customer WHERE c_w_id = p_w_id AND c_d_id = p_d_id AND c_id = p_c_id;
    SELECT w_tax INTO v_w_tax FROM warehouse WHERE w_id = p_w_id;
    UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = p_w_id AND d_id = p_d_id
    RETURNING d_next_o_id - 1, d_tax INTO p_o_id, v_d_tax;
    INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
    VALUES (p_w_id, p_d_id, p_o_id, p_c_id, p_at, v_count, v_all_local);
    INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES (p_w_id, p_d_id, p_o_id);
    FOR i IN 1..v_count LOOP
        SELECT i_price INTO v_price FROM item WHERE i_id = p_i_ids[i];
        IF NOT FOUND THEN
            RAISE EXCEPTION 'item number is not valid' USING ERRCODE = 'TPC01';
        END IF;
        SELECT s_quantity,
               CASE p_d_id WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04
                   WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08
                   WHEN 9 THEN s_dist_09 ELSE s_dist_10 END
        INTO v_quantity, v_dist
        FROM stock WHERE s_w_id = p_supply_w_ids[i] AND s_i_id = p_i_ids[i] FOR UPDATE;
        v_quantity := v_quantity - p_quantities[i];
        IF v_quantity < 10 THEN
            v_quantity := v_quantity + 91;
        END IF;
        UPDATE stock
        SET s_quantity = v_quantity, s_ytd = s_ytd + p_quantities[i], s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + CASE WHEN p_supply_w_ids[i] = p_w_id THEN 0 ELSE 1 END
        WHERE s_w_id = p_supply_w_ids[i] AND s_i_id = p_i_ids[i];
        v_amount := p_quantities[i] * v_price;
        v_sum := v_sum + v_amount;
        INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount,
                                ol_dist_info)
        VALUES (p_w_id, p_d_id, p_o_id, i, p_i_ids[i], p_supply_w_ids[i], p_quantities[i], v_amount, v_dist);
    END LOOP;
    p_total := v_sum * (1 - v_discount) * (1 + v_w_tax + v_d_tax);
END
$$;

-- The customer is told by a number, or else by a last name: then the middle one by first name is taken, rounded up.
CREATE PROCEDURE payment(
    p_w_id int, p_d_id int, p_c_w_id int, p_c_d_id int, p_c_id int, p_c_last text, p_amount numeric, p_at timestamptz
)
LANGUAGE plpgsql AS $$
DECLARE
    v_w_name text;
    v_d_name text;
    v_ids int[];
    v_c_id int := p_c_id;
    v_credit text;
    v_data text;
BEGIN
    UPDATE warehouse SET w_ytd = w_ytd + p_amount WHERE w_id = p_w_id RETURNING w_name INTO v_w_name;
    UPDATE district SET d_ytd = d_ytd + p_amount WHERE d_w_id = p_w_id AND d_id = p_d_id RETURNING d_name INTO v_d_name;
    IF v_c_id IS NULL THEN
        SELECT array_agg(c_id ORDER BY c_first) INTO v_ids
        FROM customer WHERE c_w_id = p_c_w_id AND c_d_id = p_c_d_id AND c_last = p_c_last;
        v_c_id := v_ids[(array_length(v_ids, 1) + 1) / 2];
    END IF;
    SELECT c_credit, c_data INTO v_credit, v_data
    FROM customer WHERE c_w_id = p_c_w_id AND c_d_id = p_c_d_id AND c_id = v_c_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no such customer' USING ERRCODE = 'no_data_found';
    END IF;
    IF v_credit = 'BC' THEN
        v_data := left(concat_ws(' ', v_c_id, p_c_d_id, p_c_w_id, p_d_id, p_w_id, p_amount) || '|' || v_data, 500);
        UPDATE customer
        SET c_balance = c_balance - p_amount, c_ytd_payment = c_ytd_payment + p_amount,
            c_payment_cnt = c_payment_cnt + 1, c_data = v_data
        WHERE c_w_id = p_c_w_id AND c_d_id = p_c_d_id AND c_id = v_c_id;
    ELSE
        UPDATE customer
        SET c_balance = c_balance - p_amount, c_ytd_payment = c_ytd_payment + p_amount,
            c_payment_cnt = c_payment_cnt + 1
        WHERE c_w_id = p_c_w_id AND c_d_id = p_c_d_id AND c_id = v_c_id;
    END IF;
    INSERT INTO history (h_c_w_id, h_c_d_id, h_c_id, h_w_id, h_d_id, h_date, h_amount, h_data)
    VALUES (p_c_w_id, p_c_d_id, v_c_id, p_w_id, p_d_id, p_at, p_amount, v_w_name || '    ' || v_d_name);
END
$$;

-- Delivers the oldest new order of each district that has one, and tells how many these were.
CREATE PROCEDURE delivery(p_w_id int, p_carrier_id int, p_at timestamptz, OUT p_delivered int)
LANGUAGE plpgsql AS $$
DECLARE
    v_o_id int;
    v_c_id int;
    v_sum numeric;
BEGIN
    p_delivered := 0;
    FOR d IN 1..10 LOOP
        SELECT no_o_id INTO v_o_id
        FROM new_order WHERE no_w_id = p_w_id AND no_d_id = d ORDER BY no_o_id LIMIT 1;
        CONTINUE WHEN NOT FOUND;
        DELETE FROM new_order WHERE no_w_id = p_w_id AND no_d_id = d AND no_o_id = v_o_id;
        IF NOT FOUND THEN
            -- At READ COMMITTED another delivery may take it while this one waits for its row.
            RAISE EXCEPTION 'the oldest order was delivered meanwhile' USING ERRCODE = 'serialization_failure';
        END IF;
        UPDATE orders SET o_carrier_id = p_carrier_id WHERE o_w_id = p_w_id AND o_d_id = d AND o_id = v_o_id
        RETURNING o_c_id INTO v_c_id;
        UPDATE order_line SET ol_delivery_d = p_at WHERE ol_w_id = p_w_id AND ol_d_id = d AND ol_o_id = v_o_id;
        SELECT sum(ol_amount) INTO v_sum
        FROM order_line WHERE ol_w_id = p_w_id AND ol_d_id = d AND ol_o_id = v_o_id;
        UPDATE customer SET c_balance = c_balance + v_sum, c_delivery_cnt = c_delivery_cnt + 1
        WHERE c_w_id = p_w_id AND c_d_id = d AND c_id = v_c_id;
        p_delivered := p_delivered + 1;
    END LOOP;
END
$$;

-- The lines of the customer's newest order.
CREATE FUNCTION order_status(p_w_id int, p_d_id int, p_c_id int, p_c_last text)
RETURNS TABLE (i_id int, supply_w_id int, quantity int, amount numeric, delivered timestamptz)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_ids int[];
    v_c_id int := p_c_id;
    v_balance numeric;
    v_o_id int;
BEGIN
    IF v_c_id IS NULL THEN
        SELECT array_agg(c_id ORDER BY c_first) INTO v_ids
        FROM customer WHERE c_w_id = p_w_id AND c_d_id = p_d_id AND c_last = p_c_last;
        v_c_id := v_ids[(array_length(v_ids, 1) + 1) / 2];
    END IF;
    SELECT c_balance INTO v_balance FROM customer WHERE c_w_id = p_w_id AND c_d_id = p_d_id AND c_id = v_c_id;
    SELECT o_id INTO v_o_id
    FROM orders WHERE o_w_id = p_w_id AND o_d_id = p_d_id AND o_c_id = v_c_id ORDER BY o_id DESC LIMIT 1;
    RETURN QUERY
    SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount::numeric, ol_delivery_d
    FROM order_line WHERE ol_w_id = p_w_id AND ol_d_id = p_d_id AND ol_o_id = v_o_id;
END
$$;

-- How many items of the district's last 20 orders are low in stock.
CREATE FUNCTION stock_level(p_w_id int, p_d_id int, p_threshold int) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_next int;
BEGIN
    SELECT d_next_o_id INTO v_next FROM district WHERE d_w_id = p_w_id AND d_id = p_d_id;
    RETURN (
        SELECT count(DISTINCT s_i_id)
        FROM order_line JOIN stock ON s_w_id = p_w_id AND s_i_id = ol_i_id
        WHERE ol_w_id = p_w_id AND ol_d_id = p_d_id AND ol_o_id >= v_next - 20 AND ol_o_id < v_next
          AND s_quantity < p_threshold
    );
END
$$;
