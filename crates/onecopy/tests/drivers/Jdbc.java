// pgjdbc: what an application does with it. What is printed must be the same through onecopy and directly.

import java.io.StringReader;
import java.io.StringWriter;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.util.Properties;
import org.postgresql.PGConnection;

class Jdbc {
    interface Call { void run() throws Exception; }

    static String state(Call call) throws Exception {
        try {
            call.run();
            return "no error";
        } catch (SQLException error) {
            return error.getSQLState();
        }
    }

    static String one(Connection db, String sql) throws SQLException {
        try (Statement statement = db.createStatement(); ResultSet rows = statement.executeQuery(sql)) {
            rows.next();
            return rows.getString(1);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Properties who = new Properties();
        who.setProperty("user", System.getenv("PGUSER"));
        who.setProperty("password", System.getenv("PGPASSWORD"));
        who.setProperty("sslmode", System.getenv("PGSSLMODE"));
        who.setProperty("sslrootcert", System.getenv("PGSSLROOTCERT"));
        who.setProperty("prepareThreshold", "2");
        String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE");
        try (Connection db = DriverManager.getConnection(url, who)) {
            System.out.println("user " + one(db, "SELECT current_user"));
            try (Statement statement = db.createStatement()) {
                statement.execute("DROP TABLE IF EXISTS jdbc; CREATE TABLE jdbc (id int PRIMARY KEY, name text, amount numeric)");
            }
            db.setAutoCommit(false);
            try (PreparedStatement insert = db.prepareStatement("INSERT INTO jdbc VALUES (?, ?, ?)")) {
                for (int n = 0; n < 10; n++) {
                    insert.setInt(1, n);
                    insert.setString(2, "n" + n);
                    insert.setBigDecimal(3, new java.math.BigDecimal(n + ".5"));
                    insert.executeUpdate();
                }
                for (int n = 10; n < 60; n++) {
                    insert.setInt(1, n);
                    insert.setString(2, "batch");
                    insert.setBigDecimal(3, null);
                    insert.addBatch();
                }
                System.out.println("batch " + insert.executeBatch().length);
                db.commit();
                insert.setInt(1, 3);
                System.out.println("unique " + state(insert::executeUpdate) + " " + state(() -> one(db, "SELECT 1")));
                db.rollback();
            }
            Savepoint savepoint = db.setSavepoint();
            one(db, "DELETE FROM jdbc RETURNING 1");
            db.rollback(savepoint);
            db.commit();
            PGConnection own = db.unwrap(PGConnection.class);
            StringBuilder lines = new StringBuilder();
            for (int n = 100; n < 400; n++) lines.append(n).append("\tcopied\t1\n");
            System.out.println("copied " + own.getCopyAPI().copyIn("COPY jdbc FROM STDIN", new StringReader(lines.toString())));
            StringWriter out = new StringWriter();
            own.getCopyAPI().copyOut("COPY (SELECT id FROM jdbc WHERE id > 396 ORDER BY id) TO STDOUT", out);
            System.out.println("out " + out.toString().replace("\n", " "));
            db.commit();
            try (Statement statement = db.createStatement()) {
                statement.setFetchSize(50);
                int count = 0;
                try (ResultSet rows = statement.executeQuery("SELECT * FROM jdbc ORDER BY id")) {
                    while (rows.next()) count++;
                }
                System.out.println("fetched " + count);
                db.rollback();
                new Thread(() -> {
                    try {
                        Thread.sleep(300);
                        statement.cancel();
                    } catch (Exception error) {
                        System.out.println("cancel failed " + error);
                    }
                }).start();
                System.out.println("cancelled " + state(() -> statement.execute("SELECT pg_sleep(30)")));
                db.rollback();
            }
            db.setAutoCommit(true);
            db.setReadOnly(true);
            System.out.println("read only " + state(() -> one(db, "DELETE FROM jdbc RETURNING 1")));
            db.setReadOnly(false);
            db.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
            System.out.println("after " + one(db, "SELECT count(*) || ' ' || sum(amount) FROM jdbc"));
        }
    }
}
