// All of Tilewire's public interface, and the list of its parts: the build takes src/api/<name>.cc where there is one.
#pragma once

#include <tilewire/all_gather_gemm.h>
#include <tilewire/call.h>
#include <tilewire/communicator.h>
#include <tilewire/data_type.h>
#include <tilewire/error.h>
#include <tilewire/gemm_all_reduce.h>
#include <tilewire/gemm_reduce_scatter.h>
#include <tilewire/link_test.h>
#include <tilewire/matrix.h>
#include <tilewire/moe_dispatch_gemm.h>
#include <tilewire/op_handle.h>
#include <tilewire/options.h>
#include <tilewire/plan_query.h>
#include <tilewire/ring_attention.h>
#include <tilewire/tensor.h>
