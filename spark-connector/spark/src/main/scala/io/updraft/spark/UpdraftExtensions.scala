// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.updraft.EarlyRules

import io.updraft.spark.functions.RegisteredCalls
import io.updraft.spark.plan.{
  ReadRowsDirectly,
  RegisteredAggregations,
  StatefulFunctions,
  UpdraftStrategy
}
import io.updraft.spark.write.delta.TableWrites
import io.updraft.spark.write.iceberg.IcebergWrites
import io.updraft.spark.write.{WriterCheckStrategy, WriterInput}

/** Spark session extension of Updraft, listed in `spark.sql.extensions`. Functions that the session
  * ships run on a pool only if `spark.updraft.udf.endpoint` is set.
  */
class UpdraftExtensions extends (SparkSessionExtensions => Unit) {

  override def apply(extensions: SparkSessionExtensions): Unit = {
    EarlyRules.inject(extensions, FunctionNames(_))
    extensions.injectPostHocResolutionRule(_ => RegisteredCalls)
    extensions.injectPreCBORule(_ => RegisteredAggregations)
    extensions.injectPlannerStrategy(UpdraftStrategy(_))
    // PySpark 3.5 does not load WriterCheckExtension by itself, so add its strategy here. If Spark
    // did load the extension, this second strategy skips every command, because the first has
    // already checked each command.
    extensions.injectPlannerStrategy(WriterCheckStrategy(_))
    extensions.injectPlannerStrategy(TableWrites(_))
    extensions.injectPlannerStrategy(IcebergWrites(_))
    extensions.injectColumnar(_ => ReadRowsDirectly)
    extensions.injectColumnar(_ => StatefulFunctions)
    extensions.injectColumnar(_ => WriterInput)
  }
}
