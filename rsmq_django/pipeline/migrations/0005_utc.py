from typing import Any

from django.db import migrations

from rsmq_django.pipeline.fields import UtcField


def publish_again(apps: Any, schema_editor: Any) -> None:
    """Let the next publishing write all days, if the database has had local times."""
    connection = schema_editor.connection
    if connection.timezone_name != "UTC":
        apps.get_model("rsmq_pipeline", "PublishedDay").objects.using(connection.alias).update(signature="")
        apps.get_model("rsmq_pipeline", "PipelineRun").objects.using(connection.alias).all().delete()


class Migration(migrations.Migration):
    dependencies = [
        ("rsmq_pipeline", "0004_muted_failures"),
    ]

    operations = [
        migrations.AlterField("pipelinerun", "started_at", UtcField(db_index=True)),
        migrations.AlterField("taskhour", "hour", UtcField()),
        migrations.AlterField("failuregroup", "first_at", UtcField()),
        migrations.AlterField("failuregroup", "last_at", UtcField()),
        migrations.AlterField("sloburn", "at", UtcField()),
        migrations.AlterField("anomaly", "hour", UtcField()),
        migrations.AlterField("queuedepth", "taken_at", UtcField()),
        migrations.RunPython(publish_again, migrations.RunPython.noop),
    ]
