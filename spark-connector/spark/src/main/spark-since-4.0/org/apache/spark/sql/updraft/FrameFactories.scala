// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.execution.window.WindowEvaluatorFactoryBase

/** Factories of window frames and the projection of window results, made by Spark's own code. */
abstract class FrameFactories extends WindowEvaluatorFactoryBase
