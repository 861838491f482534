// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.internal.SQLConf

object SessionConf {

  /** Settings of the session, in a view too: while Spark analyses the query of a view,
    * `SQLConf.get` has what Spark itself keeps with views, and none of `spark.updraft`.
    */
  def get: SQLConf = SparkSession.getActiveSession.fold(SQLConf.get)(_.sessionState.conf)
}
