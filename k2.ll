; ModuleID = '/tmp/scratch/spaces/k2.c'
source_filename = "/tmp/scratch/spaces/k2.c"
target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-unknown-linux5.10.0-gnu2.31.0"

; Function Attrs: nofree norecurse nosync nounwind memory(argmem: readwrite) uwtable
define noundef i32 @bessemer_update_16x16(ptr noundef captures(none) %0, ptr noundef readonly captures(none) %1, ptr noundef readonly captures(none) %2, i64 noundef %3, i64 noundef %4, i64 noundef %5) local_unnamed_addr #0 !dbg !24 {
    #dbg_value(ptr %0, !39, !DIExpression(), !52)
    #dbg_value(ptr %1, !40, !DIExpression(), !52)
    #dbg_value(ptr %2, !41, !DIExpression(), !52)
    #dbg_value(i64 %3, !42, !DIExpression(), !52)
    #dbg_value(i64 %4, !43, !DIExpression(), !52)
    #dbg_value(i64 %5, !44, !DIExpression(), !52)
    #dbg_value(i32 0, !45, !DIExpression(), !53)
  br label %8, !dbg !54

7:                                                ; preds = %15
  ret i32 0, !dbg !55

8:                                                ; preds = %6, %15
  %9 = phi i64 [ 0, %6 ], [ %16, %15 ]
    #dbg_value(i64 %9, !45, !DIExpression(), !53)
  %10 = mul nsw i64 %3, %9, !dbg !56
  %11 = getelementptr inbounds float, ptr %0, i64 %10, !dbg !57
  %12 = load <16 x float>, ptr %11, align 4, !dbg !58, !tbaa !59
    #dbg_value(<16 x float> %12, !47, !DIExpression(), !60)
    #dbg_value(i32 0, !50, !DIExpression(), !61)
  %13 = mul nsw i64 %4, %9
  %14 = getelementptr float, ptr %1, i64 %13
    #dbg_value(i32 0, !50, !DIExpression(), !61)
    #dbg_value(<16 x float> %12, !47, !DIExpression(), !60)
  br label %18, !dbg !62

15:                                               ; preds = %18
  store <16 x float> %37, ptr %11, align 4, !dbg !63, !tbaa !59
  %16 = add nuw nsw i64 %9, 1, !dbg !64
    #dbg_value(i64 %16, !45, !DIExpression(), !53)
  %17 = icmp eq i64 %16, 16, !dbg !65
  br i1 %17, label %7, label %8, !dbg !66, !llvm.loop !67

18:                                               ; preds = %18, %8
  %19 = phi i64 [ 0, %8 ], [ %38, %18 ]
  %20 = phi <16 x float> [ %12, %8 ], [ %37, %18 ]
    #dbg_value(i64 %19, !50, !DIExpression(), !61)
    #dbg_value(<16 x float> %20, !47, !DIExpression(), !60)
  %21 = getelementptr float, ptr %14, i64 %19, !dbg !71
  %22 = load float, ptr %21, align 4, !dbg !71, !tbaa !74
  %23 = insertelement <16 x float> poison, float %22, i64 0, !dbg !71
  %24 = shufflevector <16 x float> %23, <16 x float> poison, <16 x i32> zeroinitializer, !dbg !71
  %25 = mul nsw i64 %5, %19, !dbg !76
  %26 = getelementptr inbounds float, ptr %2, i64 %25, !dbg !77
  %27 = load <16 x float>, ptr %26, align 4, !dbg !77, !tbaa !59
  %28 = tail call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %24, <16 x float> %27, <16 x float> %20), !dbg !78
    #dbg_value(<16 x float> %28, !47, !DIExpression(), !60)
  %29 = or disjoint i64 %19, 1, !dbg !79
    #dbg_value(i64 %29, !50, !DIExpression(), !61)
  %30 = getelementptr float, ptr %14, i64 %29, !dbg !71
  %31 = load float, ptr %30, align 4, !dbg !71, !tbaa !74
  %32 = insertelement <16 x float> poison, float %31, i64 0, !dbg !71
  %33 = shufflevector <16 x float> %32, <16 x float> poison, <16 x i32> zeroinitializer, !dbg !71
  %34 = mul nsw i64 %5, %29, !dbg !76
  %35 = getelementptr inbounds float, ptr %2, i64 %34, !dbg !77
  %36 = load <16 x float>, ptr %35, align 4, !dbg !77, !tbaa !59
  %37 = tail call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %33, <16 x float> %36, <16 x float> %28), !dbg !80
    #dbg_value(<16 x float> %37, !47, !DIExpression(), !60)
  %38 = add nuw nsw i64 %19, 2, !dbg !81
    #dbg_value(i64 %38, !50, !DIExpression(), !61)
  %39 = icmp eq i64 %38, 16, !dbg !82
  br i1 %39, label %15, label %18, !dbg !83, !llvm.loop !84
}

; Function Attrs: mustprogress nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare <16 x float> @llvm.fmuladd.v16f32(<16 x float>, <16 x float>, <16 x float>) #1

attributes #0 = { nofree norecurse nosync nounwind memory(argmem: readwrite) uwtable "frame-pointer"="all" "min-legal-vector-width"="0" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="x86-64" "target-features"="+64bit,+cmov,+cx8,+fxsr,+idivq-to-divl,+macrofusion,+mmx,+nopl,+slow-3ops-lea,+slow-incdec,+sse,+sse2,+vzeroupper,+x87,-16bit-mode,-32bit-mode,-adx,-aes,-allow-light-256-bit,-amx-avx512,-amx-bf16,-amx-complex,-amx-fp16,-amx-fp8,-amx-int8,-amx-movrs,-amx-tf32,-amx-tile,-avx,-avx10.1,-avx10.2,-avx2,-avx512bf16,-avx512bitalg,-avx512bw,-avx512cd,-avx512dq,-avx512f,-avx512fp16,-avx512ifma,-avx512vbmi,-avx512vbmi2,-avx512vl,-avx512vnni,-avx512vp2intersect,-avx512vpopcntdq,-avxifma,-avxneconvert,-avxvnni,-avxvnniint16,-avxvnniint8,-bmi,-bmi2,-branch-hint,-branchfusion,-ccmp,-cf,-cldemote,-clflushopt,-clwb,-clzero,-cmpccxadd,-crc32,-cx16,-egpr,-enqcmd,-ermsb,-f16c,-false-deps-getmant,-false-deps-lzcnt-tzcnt,-false-deps-mulc,-false-deps-mullq,-false-deps-perm,-false-deps-popcnt,-false-deps-range,-fast-11bytenop,-fast-15bytenop,-fast-7bytenop,-fast-bextr,-fast-dpwssd,-fast-gather,-fast-hops,-fast-imm16,-fast-lzcnt,-fast-movbe,-fast-scalar-fsqrt,-fast-scalar-shift-masks,-fast-shld-rotate,-fast-variable-crosslane-shuffle,-fast-variable-perlane-shuffle,-fast-vector-fsqrt,-fast-vector-shift-masks,-faster-shift-than-shuffle,-fma,-fma4,-fsgsbase,-fsrm,-gfni,-harden-sls-ijmp,-harden-sls-ret,-hreset,-idivl-to-divb,-inline-asm-use-gpr32,-invpcid,-kl,-lea-sp,-lea-uses-ag,-lvi-cfi,-lvi-load-hardening,-lwp,-lzcnt,-movbe,-movdir64b,-movdiri,-movrs,-mwaitx,-ndd,-nf,-no-bypass-delay,-no-bypass-delay-blend,-no-bypass-delay-mov,-no-bypass-delay-shuffle,-pad-short-functions,-pclmul,-pconfig,-pku,-popcnt,-ppx,-prefer-128-bit,-prefer-256-bit,-prefer-legacy-setcc,-prefer-mask-registers,-prefer-movmsk-over-vtest,-prefer-no-gather,-prefer-no-scatter,-prefetchi,-prfchw,-ptwrite,-push2pop2,-raoint,-rdpid,-rdpru,-rdrnd,-rdseed,-retpoline,-retpoline-external-thunk,-retpoline-indirect-branches,-retpoline-indirect-calls,-rtm,-sahf,-sbb-dep-breaking,-serialize,-seses,-sgx,-sha,-sha512,-shstk,-slow-lea,-slow-pmaddwd,-slow-pmulld,-slow-pmullq,-slow-shld,-slow-two-mem-ops,-slow-unaligned-mem-16,-slow-unaligned-mem-32,-sm3,-sm4,-sse-unaligned-mem,-sse3,-sse4.1,-sse4.2,-sse4a,-ssse3,-tagged-globals,-tbm,-tsxldtrk,-tuning-fast-imm-vector-shift,-uintr,-use-glm-div-sqrt-costs,-use-slm-arith-costs,-usermsr,-vaes,-vpclmulqdq,-waitpkg,-wbnoinvd,-widekl,-xop,-xsave,-xsavec,-xsaveopt,-xsaves,-zu" "tune-cpu"="generic" }
attributes #1 = { mustprogress nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }

!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!12, !13, !14, !15, !16, !17, !18}
!llvm.ident = !{!19}
!llvm.errno.tbaa = !{!20}

!0 = distinct !DICompileUnit(language: DW_LANG_C11, file: !1, producer: "clang version 22.1.8", isOptimized: true, runtimeVersion: 0, emissionKind: FullDebug, retainedTypes: !2, splitDebugInlining: false, nameTableKind: None)
!1 = !DIFile(filename: "/tmp/scratch/spaces/k2.c", directory: "/tmp/wt/spaces")
!2 = !{!3, !10}
!3 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !4, size: 64)
!4 = !DIDerivedType(tag: DW_TAG_typedef, name: "Row", file: !5, line: 2, baseType: !6, align: 32)
!5 = !DIFile(filename: "scratch/spaces/k2.c", directory: "/tmp")
!6 = !DICompositeType(tag: DW_TAG_array_type, baseType: !7, size: 512, flags: DIFlagVector, elements: !8)
!7 = !DIBasicType(name: "float", size: 32, encoding: DW_ATE_float)
!8 = !{!9}
!9 = !DISubrange(count: 16)
!10 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !11, size: 64)
!11 = !DIDerivedType(tag: DW_TAG_const_type, baseType: !4)
!12 = !{i32 7, !"Dwarf Version", i32 4}
!13 = !{i32 2, !"Debug Info Version", i32 3}
!14 = !{i32 1, !"wchar_size", i32 4}
!15 = !{i32 8, !"PIC Level", i32 2}
!16 = !{i32 7, !"uwtable", i32 2}
!17 = !{i32 7, !"frame-pointer", i32 2}
!18 = !{i32 7, !"debug-info-assignment-tracking", i1 true}
!19 = !{!"clang version 22.1.8"}
!20 = !{!21, !21, i64 0}
!21 = !{!"int", !22, i64 0}
!22 = !{!"omnipotent char", !23, i64 0}
!23 = !{!"Simple C/C++ TBAA"}
!24 = distinct !DISubprogram(name: "bessemer_update_16x16", scope: !5, file: !5, line: 3, type: !25, scopeLine: 3, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !0, retainedNodes: !38, keyInstructions: true)
!25 = !DISubroutineType(types: !26)
!26 = !{!27, !32, !33, !33, !35, !35, !35}
!27 = !DIDerivedType(tag: DW_TAG_typedef, name: "int32_t", file: !28, line: 26, baseType: !29)
!28 = !DIFile(filename: "/work/main/.venv/lib/python3.11/site-packages/ziglang/lib/libc/include/generic-glibc/bits/stdint-intn.h", directory: "")
!29 = !DIDerivedType(tag: DW_TAG_typedef, name: "__int32_t", file: !30, line: 41, baseType: !31)
!30 = !DIFile(filename: "/work/main/.venv/lib/python3.11/site-packages/ziglang/lib/libc/include/generic-glibc/bits/types.h", directory: "")
!31 = !DIBasicType(name: "int", size: 32, encoding: DW_ATE_signed)
!32 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !7, size: 64)
!33 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !34, size: 64)
!34 = !DIDerivedType(tag: DW_TAG_const_type, baseType: !7)
!35 = !DIDerivedType(tag: DW_TAG_typedef, name: "int64_t", file: !28, line: 27, baseType: !36)
!36 = !DIDerivedType(tag: DW_TAG_typedef, name: "__int64_t", file: !30, line: 44, baseType: !37)
!37 = !DIBasicType(name: "long", size: 64, encoding: DW_ATE_signed)
!38 = !{!39, !40, !41, !42, !43, !44, !45, !47, !50}
!39 = !DILocalVariable(name: "c", arg: 1, scope: !24, file: !5, line: 3, type: !32)
!40 = !DILocalVariable(name: "a", arg: 2, scope: !24, file: !5, line: 3, type: !33)
!41 = !DILocalVariable(name: "b", arg: 3, scope: !24, file: !5, line: 3, type: !33)
!42 = !DILocalVariable(name: "c_stride", arg: 4, scope: !24, file: !5, line: 3, type: !35)
!43 = !DILocalVariable(name: "a_stride", arg: 5, scope: !24, file: !5, line: 3, type: !35)
!44 = !DILocalVariable(name: "b_stride", arg: 6, scope: !24, file: !5, line: 3, type: !35)
!45 = !DILocalVariable(name: "i", scope: !46, file: !5, line: 4, type: !31)
!46 = distinct !DILexicalBlock(scope: !24, file: !5, line: 4, column: 3)
!47 = !DILocalVariable(name: "sum", scope: !48, file: !5, line: 4, type: !4)
!48 = distinct !DILexicalBlock(scope: !49, file: !5, line: 4, column: 32)
!49 = distinct !DILexicalBlock(scope: !46, file: !5, line: 4, column: 3)
!50 = !DILocalVariable(name: "k", scope: !51, file: !5, line: 5, type: !31)
!51 = distinct !DILexicalBlock(scope: !48, file: !5, line: 5, column: 5)
!52 = !DILocation(line: 0, scope: !24)
!53 = !DILocation(line: 0, scope: !46)
!54 = !DILocation(line: 4, column: 3, scope: !46, atomGroup: 18, atomRank: 1)
!55 = !DILocation(line: 7, column: 3, scope: !24, atomGroup: 14, atomRank: 1)
!56 = !DILocation(line: 4, column: 57, scope: !48)
!57 = !DILocation(line: 4, column: 44, scope: !48)
!58 = !DILocation(line: 4, column: 44, scope: !48, atomGroup: 4, atomRank: 2)
!59 = !{!22, !22, i64 0}
!60 = !DILocation(line: 0, scope: !48)
!61 = !DILocation(line: 0, scope: !51)
!62 = !DILocation(line: 5, column: 5, scope: !51, atomGroup: 16, atomRank: 1)
!63 = !DILocation(line: 6, column: 27, scope: !48, atomGroup: 11, atomRank: 1)
!64 = !DILocation(line: 4, column: 27, scope: !49, atomGroup: 12, atomRank: 2)
!65 = !DILocation(line: 4, column: 21, scope: !49, atomGroup: 2, atomRank: 1)
!66 = !DILocation(line: 4, column: 3, scope: !46, atomGroup: 3, atomRank: 1)
!67 = distinct !{!67, !68, !69, !70}
!68 = !DILocation(line: 4, column: 3, scope: !46)
!69 = !DILocation(line: 6, column: 34, scope: !46)
!70 = !{!"llvm.loop.mustprogress"}
!71 = !DILocation(line: 5, column: 43, scope: !72)
!72 = distinct !DILexicalBlock(scope: !73, file: !5, line: 5, column: 34)
!73 = distinct !DILexicalBlock(scope: !51, file: !5, line: 5, column: 5)
!74 = !{!75, !75, i64 0}
!75 = !{!"float", !22, i64 0}
!76 = !DILocation(line: 5, column: 80, scope: !72)
!77 = !DILocation(line: 5, column: 61, scope: !72)
!78 = !DILocation(line: 5, column: 40, scope: !72, atomGroup: 8, atomRank: 2)
!79 = !DILocation(line: 5, column: 29, scope: !73, atomGroup: 9, atomRank: 2)
!80 = !DILocation(line: 5, column: 40, scope: !72, atomGroup: 19, atomRank: 2)
!81 = !DILocation(line: 5, column: 29, scope: !73, atomGroup: 20, atomRank: 2)
!82 = !DILocation(line: 5, column: 23, scope: !73, atomGroup: 21, atomRank: 1)
!83 = !DILocation(line: 5, column: 5, scope: !51, atomGroup: 22, atomRank: 1)
!84 = distinct !{!84, !85, !86, !70}
!85 = !DILocation(line: 5, column: 5, scope: !51)
!86 = !DILocation(line: 5, column: 92, scope: !51)
