/* Runs the statements of a file in Flink, as its SQL client does with -f. */

import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

public class FlinkSql {
    public static void main(String[] arguments) throws Exception {
        var tables = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
        for (String statement : Files.readString(Path.of(arguments[0])).strip().split(";")) {
            tables.executeSql(statement).print();
        }
    }
}
