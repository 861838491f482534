// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.execution.datasources.orc.OrcFileFormat
import org.apache.spark.sql.types.StructType

import io.updraft.proto.v1.WriteCommand

/** Data source `updraft-orc`: Spark's ORC, with files made by a writer service. Spark still does
  * everything else, such as reading and committing files.
  */
class UpdraftOrcFormat extends OrcFileFormat with RemoteFormat {

  override def shortName(): String = "updraft-orc"

  override def toString: String = "Updraft-ORC"

  override protected def command(
      builder: WriteCommand.Builder,
      dataSchema: StructType,
      conf: Configuration
  ): Either[String, WriteCommand] = OrcPlan.command(builder, dataSchema, conf)
}
