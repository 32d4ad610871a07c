
; Function Attrs: nofree norecurse nosync nounwind memory(argmem: readwrite)
define noundef i32 @bessemer_update_16x16(ptr noalias noundef captures(none) %0, ptr noalias noundef readonly captures(none) %1, ptr noalias noundef readonly captures(none) %2, i64 noundef %3, i64 noundef %4, i64 noundef %5) local_unnamed_addr #0 {
  br label %8

7:                                                ; preds = %15
  ret i32 0

8:                                                ; preds = %6, %15
  %9 = phi i64 [ 0, %6 ], [ %16, %15 ]
  %10 = mul nsw i64 %3, %9
  %11 = getelementptr inbounds float, ptr %0, i64 %10
  %12 = load <16 x float>, ptr %11, align 4
  %13 = mul nsw i64 %4, %9
  %14 = getelementptr float, ptr %1, i64 %13
  br label %18

15:                                               ; preds = %18
  store <16 x float> %37, ptr %11, align 4
  %16 = add nuw nsw i64 %9, 1
  %17 = icmp eq i64 %16, 16
  br i1 %17, label %7, label %8, !llvm.loop !4

18:                                               ; preds = %18, %8
  %19 = phi i64 [ 0, %8 ], [ %38, %18 ]
  %20 = phi <16 x float> [ %12, %8 ], [ %37, %18 ]
  %21 = getelementptr float, ptr %14, i64 %19
  %22 = load float, ptr %21, align 4
  %23 = insertelement <16 x float> poison, float %22, i64 0
  %24 = shufflevector <16 x float> %23, <16 x float> poison, <16 x i32> zeroinitializer
  %25 = mul nsw i64 %5, %19
  %26 = getelementptr inbounds float, ptr %2, i64 %25
  %27 = load <16 x float>, ptr %26, align 4
  %28 = tail call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %24, <16 x float> %27, <16 x float> %20)
  %29 = or disjoint i64 %19, 1
  %30 = getelementptr float, ptr %14, i64 %29
  %31 = load float, ptr %30, align 4
  %32 = insertelement <16 x float> poison, float %31, i64 0
  %33 = shufflevector <16 x float> %32, <16 x float> poison, <16 x i32> zeroinitializer
  %34 = mul nsw i64 %5, %29
  %35 = getelementptr inbounds float, ptr %2, i64 %34
  %36 = load <16 x float>, ptr %35, align 4
  %37 = tail call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %33, <16 x float> %36, <16 x float> %28)
  %38 = add nuw nsw i64 %19, 2
  %39 = icmp eq i64 %38, 16
  br i1 %39, label %15, label %18, !llvm.loop !6
}

; Function Attrs: mustprogress nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare <16 x float> @llvm.fmuladd.v16f32(<16 x float>, <16 x float>, <16 x float>) #1

attributes #0 = { nofree norecurse nosync nounwind memory(argmem: readwrite) "min-legal-vector-width"="0" "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" }
attributes #1 = { mustprogress nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }


!4 = distinct !{!4, !5}
!5 = !{!"llvm.loop.mustprogress"}
!6 = distinct !{!6, !5}
