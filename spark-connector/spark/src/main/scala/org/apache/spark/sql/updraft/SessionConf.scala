// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.internal.SQLConf

object SessionConf {

  /** Return the settings of the session, even in a view: while Spark analyses the query of a view,
    * `SQLConf.get` has only the settings that Spark stores with views, which exclude
    * `spark.updraft`.
    */
  def get: SQLConf = SparkSession.getActiveSession.fold(SQLConf.get)(_.sessionState.conf)
}
