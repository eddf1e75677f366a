"""Settings for sessions of tests, which have few rows and much to start."""

#: A JVM that starts fast rather than runs fast.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
QUICK = {
    "spark.driver.extraJavaOptions": JAVA,
    # Generated code and plans that adapt pay for themselves with more rows than tests have.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
#: Executors in processes of their own, on this machine. Two partitions, so that they exchange rows.
CLUSTER = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": JAVA,
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2",
}
