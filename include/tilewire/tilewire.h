// All of Tilewire's public interface.
#pragma once

#include <tilewire/all_gather_gemm.h>
#include <tilewire/call.h>
#include <tilewire/communicator.h>
#include <tilewire/data_type.h>
#include <tilewire/error.h>
#include <tilewire/matrix.h>
#include <tilewire/options.h>
