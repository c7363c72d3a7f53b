// pgx: what an application does with it. What is printed must be the same through onecopy and directly.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

func state(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return fmt.Sprint(err)
}

func must(err error) {
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
}

func main() {
	ctx := context.Background()
	db, err := pgx.Connect(ctx, "")
	must(err)
	var user string
	must(db.QueryRow(ctx, "SELECT current_user").Scan(&user))
	fmt.Println("user", user)
	_, err = db.Exec(ctx, "DROP TABLE IF EXISTS pgx_t; CREATE TABLE pgx_t (id int PRIMARY KEY, name text, amount float8, at timestamptz)")
	must(err)
	tx, err := db.Begin(ctx)
	must(err)
	for n := 0; n < 10; n++ {
		_, err = tx.Exec(ctx, "INSERT INTO pgx_t VALUES ($1, $2, $3, $4)", n, fmt.Sprint("n", n), float64(n)/4, time.Unix(int64(n), 0))
		must(err)
	}
	must(tx.Commit(ctx))
	tx, err = db.Begin(ctx)
	must(err)
	_, err = tx.Exec(ctx, "INSERT INTO pgx_t (id) VALUES ($1)", 3)
	_, second := tx.Exec(ctx, "SELECT 1")
	fmt.Println("unique", state(err), state(second))
	must(tx.Rollback(ctx))
	batch := &pgx.Batch{}
	for n := 0; n < 5; n++ {
		batch.Queue("UPDATE pgx_t SET amount = amount + $2 WHERE id = $1", n, 1.0)
	}
	must(db.SendBatch(ctx, batch).Close())
	rows := [][]any{}
	for n := 100; n < 400; n++ {
		rows = append(rows, []any{n, "copied"})
	}
	copied, err := db.CopyFrom(ctx, pgx.Identifier{"pgx_t"}, []string{"id", "name"}, pgx.CopyFromRows(rows))
	must(err)
	fmt.Println("copied", copied)
	err = pgx.BeginFunc(ctx, db, func(outer pgx.Tx) error {
		inner, err := outer.Begin(ctx)
		must(err)
		_, err = inner.Exec(ctx, "DELETE FROM pgx_t")
		must(err)
		return inner.Rollback(ctx)
	})
	must(err)
	_, err = db.Exec(ctx, "SET statement_timeout = 300")
	must(err)
	_, err = db.Exec(ctx, "SELECT pg_sleep(30)")
	fmt.Println("timed out", state(err))
	_, err = db.Exec(ctx, "RESET statement_timeout")
	must(err)
	sleeping := make(chan error)
	go func() {
		_, err := db.Exec(ctx, "SELECT pg_sleep(30)")
		sleeping <- err
	}()
	time.Sleep(300 * time.Millisecond)
	must(db.PgConn().CancelRequest(ctx))
	fmt.Println("cancelled", state(<-sleeping))
	must(db.Close(ctx))
	pool, err := pgxpool.New(ctx, "pool_max_conns=3")
	must(err)
	var all sync.WaitGroup
	for n := 0; n < 20; n++ {
		all.Go(func() {
			_, err := pool.Exec(ctx, "UPDATE pgx_t SET amount = amount + 1 WHERE id = $1", n%10)
			must(err)
		})
	}
	all.Wait()
	var count int
	var sum float64
	must(pool.QueryRow(ctx, "SELECT count(*), sum(amount) FROM pgx_t").Scan(&count, &sum))
	fmt.Println("pool", count, sum)
	pool.Close()
}
