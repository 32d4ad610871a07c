"""LLVM's names of processors and features. Made by `python -m docs.processors`; do not edit."""


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _rows(text: str) -> dict[str, frozenset[str]]:
    rows: dict[str, set[str]] = {}
    for word in text.split():
        if word.endswith(":"):
            added = rows.setdefault(word[:-1], set())
        else:
            added.add(word)
    return {name: frozenset(others) for name, others in rows.items()}


X86_64: dict[str, tuple[str, ...]] = {
    "x86-64": _names(
        """
        amdfam10 athlon-fx athlon64 athlon64-sse3 atom barcelona bonnell btver1 core2
        core_2_duo_sse4_1 core_2_duo_ssse3 generic k8 k8-sse3 nocona opteron opteron-sse3 penryn
        x86-64
        """
    ),
    "x86-64-v2": _names(
        """
        atom_sse4_2 atom_sse4_2_movbe bdver1 bdver2 bdver3 btver2 core-avx-i core_2nd_gen_avx
        core_3rd_gen_avx core_aes_pclmulqdq core_i7_sse4_2 corei7 corei7-avx goldmont goldmont-plus
        goldmont_plus ivybridge nehalem sandybridge silvermont slm tremont westmere x86-64-v2
        """
    ),
    "x86-64-v3": _names(
        """
        alderlake arrowlake arrowlake-s arrowlake_s bdver4 broadwell clearwaterforest core-avx2
        core_4th_gen_avx core_4th_gen_avx_tsx core_5th_gen_avx core_5th_gen_avx_tsx gracemont
        grandridge haswell knl knm lunarlake meteorlake mic_avx512 pantherlake raptorlake
        sierraforest skylake wildcatlake x86-64-v3 znver1 znver2 znver3
        """
    ),
    "x86-64-v4": _names(
        """
        cannonlake cascadelake cooperlake diamondrapids emeraldrapids graniterapids graniterapids-d
        graniterapids_d icelake-client icelake-server icelake_client icelake_server novalake
        rocketlake sapphirerapids skx skylake-avx512 skylake_avx512 tigerlake x86-64-v4 znver4
        znver5
        """
    ),
}
"""Processors with 64-bit code, by the level of x86-64 whose instructions they have."""

X86_32 = frozenset(
    _names(
        """
        athlon athlon-4 athlon-mp athlon-tbird athlon-xp c3 c3-2 geode i386 i486 i586 i686 k6 k6-2
        k6-3 lakemont pentium pentium-m pentium-mmx pentium2 pentium3 pentium3m pentium4 pentium4m
        pentium_4 pentium_4_sse3 pentium_ii pentium_iii pentium_iii_no_xmm_regs pentium_m
        pentium_mmx pentium_pro pentiumpro prescott winchip-c6 winchip2 yonah
        """
    )
)
"""Processors of x86 without 64-bit code."""

AARCH64 = frozenset(
    _names(
        """
        a64fx ampere1 ampere1a ampere1b ampere1c c1-nano c1-premium c1-pro c1-ultra carmel
        cortex-a320 cortex-a34 cortex-a35 cortex-a510 cortex-a520 cortex-a520ae cortex-a53
        cortex-a55 cortex-a57 cortex-a65 cortex-a65ae cortex-a710 cortex-a715 cortex-a72 cortex-a720
        cortex-a720ae cortex-a725 cortex-a73 cortex-a75 cortex-a76 cortex-a76ae cortex-a77
        cortex-a78 cortex-a78ae cortex-a78c cortex-r82 cortex-r82ae cortex-x1 cortex-x1c cortex-x2
        cortex-x3 cortex-x4 cortex-x925 exynos-m3 exynos-m4 exynos-m5 falkor fujitsu-monaka gb10
        grace kryo neoverse-512tvb neoverse-e1 neoverse-n1 neoverse-n2 neoverse-n3 neoverse-v1
        neoverse-v2 neoverse-v3 neoverse-v3ae olympus oryon-1 saphira thunderx thunderx2t99
        thunderx3t110 thunderxt81 thunderxt83 thunderxt88 tsv110
        """
    )
)
"""Processors with 64-bit Arm code that run Linux."""

APPLE = frozenset(
    _names(
        """
        apple-a10 apple-a11 apple-a12 apple-a13 apple-a14 apple-a15 apple-a16 apple-a17 apple-a7
        apple-m4 apple-m5
        """
    )
)
"""Processors with 64-bit Arm code that run macOS or another system of Apple's."""

RISCV64 = frozenset(
    _names(
        """
        andes-ax25 andes-ax45 andes-ax45mpv andes-nx45 mips-p8700 sifive-p450 sifive-p470
        sifive-p550 sifive-p670 sifive-p870 sifive-s54 sifive-s76 sifive-u54 sifive-u74 sifive-x280
        sifive-x390 spacemit-x60 syntacore-scr4-rv64 syntacore-scr5-rv64 syntacore-scr7
        tt-ascalon-d8 veyron-v1 xiangshan-kunminghu xiangshan-nanhu
        """
    )
)
"""RISC-V processors with 64-bit code and double-precision registers."""

ARM_32 = frozenset(
    _names(
        """
        arm1020e arm1020t arm1022e arm10e arm10tdmi arm1136j-s arm1136jf-s arm1156t2-s arm1156t2f-s
        arm1176jz-s arm1176jzf-s arm710t arm720t arm7tdmi arm7tdmi-s arm8 arm810 arm9 arm920 arm920t
        arm922t arm926ej-s arm940t arm946e-s arm966e-s arm968e-s arm9e arm9tdmi cortex-a12
        cortex-a15 cortex-a17 cortex-a32 cortex-a5 cortex-a7 cortex-a8 cortex-a9 cortex-m0
        cortex-m0plus cortex-m1 cortex-m23 cortex-m3 cortex-m33 cortex-m35p cortex-m4 cortex-m52
        cortex-m55 cortex-m7 cortex-m85 cortex-r4 cortex-r4f cortex-r5 cortex-r52 cortex-r52plus
        cortex-r7 cortex-r8 cyclone ep9312 iwmmxt krait mpcore mpcorenovfp sc000 sc300 star-mc1
        star-mc3 strongarm strongarm110 strongarm1100 strongarm1110 swift xscale
        """
    )
)
"""Arm processors without 64-bit code."""

RISCV_SMALL = frozenset(
    _names(
        """
        andes-45-series andes-a25 andes-a45 andes-n45 generic-ooo generic-rv32 generic-rv64 rocket
        rocket-rv32 rocket-rv64 rp2350-hazard3 sifive-7-series sifive-e20 sifive-e21 sifive-e24
        sifive-e31 sifive-e34 sifive-e76 sifive-s21 sifive-s51 syntacore-scr1-base
        syntacore-scr1-max syntacore-scr3-rv32 syntacore-scr3-rv64 syntacore-scr4-rv32
        syntacore-scr5-rv32
        """
    )
)
"""RISC-V processors that lack one of these."""

X86_FEATURES = frozenset(
    _names(
        """
        16bit-mode 32bit-mode 64bit 64bit-mode adx aes allow-light-256-bit amx-avx512 amx-bf16
        amx-complex amx-fp16 amx-fp8 amx-int8 amx-movrs amx-tf32 amx-tile avx avx10.1 avx10.1-512
        avx10.2 avx10.2-512 avx2 avx512bf16 avx512bitalg avx512bw avx512cd avx512dq avx512f
        avx512fp16 avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vp2intersect
        avx512vpopcntdq avxifma avxneconvert avxvnni avxvnniint16 avxvnniint8 bmi bmi2 branch-hint
        branchfusion ccmp cf cldemote clflushopt clwb clzero cmov cmpccxadd crc32 cx16 cx8 egpr
        enqcmd ermsb evex512 f16c false-deps-getmant false-deps-lzcnt-tzcnt false-deps-mulc
        false-deps-mullq false-deps-perm false-deps-popcnt false-deps-range fast-11bytenop
        fast-15bytenop fast-7bytenop fast-bextr fast-dpwssd fast-gather fast-hops fast-imm16
        fast-lzcnt fast-movbe fast-scalar-fsqrt fast-scalar-shift-masks fast-shld-rotate
        fast-variable-crosslane-shuffle fast-variable-perlane-shuffle fast-vector-fsqrt
        fast-vector-shift-masks faster-shift-than-shuffle fma fma4 fsgsbase fsrm fxsr gfni
        harden-sls-ijmp harden-sls-ret hreset idivl-to-divb idivq-to-divl inline-asm-use-gpr32
        invpcid kl lea-sp lea-uses-ag lvi-cfi lvi-load-hardening lwp lzcnt macrofusion mmx movbe
        movdir64b movdiri movrs mwaitx ndd nf no-bypass-delay no-bypass-delay-blend
        no-bypass-delay-mov no-bypass-delay-shuffle nopl pad-short-functions pclmul pconfig pku
        popcnt ppx prefer-128-bit prefer-256-bit prefer-legacy-setcc prefer-mask-registers
        prefer-movmsk-over-vtest prefer-no-gather prefer-no-scatter prefetchi prfchw ptwrite
        push2pop2 raoint rdpid rdpru rdrnd rdseed retpoline retpoline-external-thunk
        retpoline-indirect-branches retpoline-indirect-calls rtm sahf sbb-dep-breaking serialize
        seses sgx sha sha512 shstk slow-3ops-lea slow-incdec slow-lea slow-pmaddwd slow-pmulld
        slow-pmullq slow-shld slow-two-mem-ops slow-unaligned-mem-16 slow-unaligned-mem-32 sm3 sm4
        soft-float sse sse-unaligned-mem sse2 sse3 sse4.1 sse4.2 sse4a ssse3 tagged-globals tbm
        tsxldtrk tuning-fast-imm-vector-shift uintr use-glm-div-sqrt-costs use-slm-arith-costs
        usermsr vaes vpclmulqdq vzeroupper waitpkg wbnoinvd widekl x32 x87 xop xsave xsavec xsaveopt
        xsaves zu
        """
    )
)
"""Features that a target may add or remove."""

X86_IMPLIED = _rows(
    """
    aes: sse2 amx-avx512: amx-tile amx-bf16: amx-tile amx-complex: amx-tile amx-fp16: amx-tile
    amx-fp8: amx-tile amx-int8: amx-tile amx-movrs: amx-tile amx-tf32: amx-tile avx: sse4.2 avx10.1:
    avx512bf16 avx512bitalg avx512cd avx512dq avx512fp16 avx512ifma avx512vbmi avx512vbmi2 avx512vl
    avx512vnni avx512vpopcntdq avx10.1-512: avx10.1 avx10.2: avx10.1 avx10.2-512: avx10.2 avx2: avx
    avx512bf16: avx512bw avx512bitalg: avx512bw avx512bw: avx512f avx512cd: avx512f avx512dq:
    avx512f avx512f: avx2 f16c fma avx512fp16: avx512bw avx512ifma: avx512f avx512vbmi: avx512bw
    avx512vbmi2: avx512bw avx512vl: avx512f avx512vnni: avx512f avx512vp2intersect: avx512f
    avx512vpopcntdq: avx512f avxifma: avx2 avxneconvert: avx2 avxvnni: avx2 avxvnniint16: avx2
    avxvnniint8: avx2 cx16: cx8 f16c: avx fma: avx fma4: avx sse4a gfni: sse2 kl: sse2 pclmul: sse2
    retpoline: retpoline-indirect-branches retpoline-indirect-calls retpoline-external-thunk:
    retpoline-indirect-calls seses: lvi-cfi sha: sse2 sha512: avx2 sm3: avx sm4: avx2 sse2: sse
    sse3: sse2 sse4.1: ssse3 sse4.2: sse4.1 sse4a: sse3 ssse3: sse3 vaes: aes avx2 vpclmulqdq: avx
    pclmul widekl: kl xop: fma4 xsavec: xsave xsaveopt: xsave xsaves: xsave
    """
)
"""Features, each with the features that it adds directly. Those may add others."""

AARCH64_FEATURES = frozenset(
    _names(
        """
        CONTEXTIDREL2 a320 a35 a510 a520 a520ae a53 a55 a57 a64fx a65 a710 a715 a72 a720 a720ae a73
        a75 a76 a77 a78 a78ae a78c addr-lsl-slow-14 aes aggressive-fma aggressive-interleaving all
        alternate-sextload-cvt-f32-pattern altnzcv alu-lsl-fast am ampere1 ampere1a ampere1b
        ampere1c amvs apple-a10 apple-a11 apple-a12 apple-a13 apple-a14 apple-a15 apple-a16
        apple-a17 apple-a7 apple-m4 apple-m5 arith-bcc-fusion arith-cbz-fusion ascend-store-address
        avoid-ldapur balance-fp-ops bf16 brbe bti btie c1-nano c1-premium c1-pro c1-ultra
        call-saved-x10 call-saved-x11 call-saved-x12 call-saved-x13 call-saved-x14 call-saved-x15
        call-saved-x18 call-saved-x8 call-saved-x9 carmel ccdp ccidx ccpp chk clrbhb cmh
        cmp-bcc-fusion cmpbr complxnum cortex-a725 cortex-r82 cortex-r82ae cortex-x1 cortex-x2
        cortex-x3 cortex-x4 cortex-x925 cpa crc crypto cssc d128 disable-fast-inc-vl
        disable-latency-sched-heuristic disable-ldp disable-maximize-scalable-bandwidth disable-stp
        disable-unpredicated-ld-st-lower dit dotprod ecv el2vmsa el3 enable-select-opt ete
        execute-only exynos-cheap-as-move exynosm3 exynosm4 f16f32dot f16f32mm f16mm f32mm f64mm
        f8f16mm f8f32mm falkor faminmax fgt fix-cortex-a53-835769 flagm fmv force-32bit-jump-tables
        fp-armv8 fp16fml fp8 fp8dot2 fp8dot4 fp8fma fpac fprcvt fptoint fujitsu-monaka fullfp16
        fuse-address fuse-addsub-2reg-const1 fuse-adrp-add fuse-aes fuse-arith-logic fuse-crypto-eor
        fuse-csel fuse-cset fuse-literals gcie gcs harden-sls-blr harden-sls-nocomdat
        harden-sls-retbr hbc hcx i8mm ite jsconv kryo ldp-aligned-only lor ls64 lscp lse lse128 lse2
        lsfe lsui lut max-interleave-factor-4 mec mops mops-go mpam mpamv2 mte mtetc neon
        neoverse512tvb neoversee1 neoversen1 neoversen2 neoversen3 neoversev1 neoversev2 neoversev3
        neoversev3AE nmi no-bti-at-return-twice no-neg-immediates no-sve-fp-ld1r no-zcz-fpr64 nv
        occmo olympus oryon-1 outline-atomics pan pan-rwv pauth pauth-lr pcdphint perfmon poe2 pops
        predictable-select-expensive predres prfm-slc-target rand ras rasv2 rcpc rcpc-immo rcpc3 rdm
        reserve-lr-for-ra reserve-x1 reserve-x10 reserve-x11 reserve-x12 reserve-x13 reserve-x14
        reserve-x15 reserve-x18 reserve-x2 reserve-x20 reserve-x21 reserve-x22 reserve-x23
        reserve-x24 reserve-x25 reserve-x26 reserve-x27 reserve-x28 reserve-x3 reserve-x4 reserve-x5
        reserve-x6 reserve-x7 reserve-x9 rme saphira sb sel2 sha2 sha3 slow-misaligned-128store
        slow-paired-128 slow-strqro-store sm4 sme sme-b16b16 sme-f16f16 sme-f64f64 sme-f8f16
        sme-f8f32 sme-fa64 sme-i16i64 sme-lutv2 sme-mop4 sme-tmop sme2 sme2p1 sme2p2 sme2p3 spe
        spe-eef specres2 specrestrict ssbs ssve-aes ssve-bitperm ssve-fexpa ssve-fp8dot2
        ssve-fp8dot4 ssve-fp8fma store-pair-suppress stp-aligned-only strict-align sve sve-aes
        sve-aes2 sve-b16b16 sve-b16mm sve-bfscale sve-bitperm sve-f16f32mm sve-sha3 sve-sm4 sve2
        sve2-aes sve2-bitperm sve2-sha3 sve2-sm4 sve2p1 sve2p2 sve2p3 tagged-globals tev the
        thunderx thunderx2t99 thunderx3t110 thunderxt81 thunderxt83 thunderxt88 tlb-rmi tlbid tlbiw
        tpidr-el1 tpidr-el2 tpidr-el3 tpidrro-el0 tracev8.4 trbe tsv110 uaops
        use-experimental-zeroing-pseudos use-fixed-over-scalable-if-equal-cost use-postra-scheduler
        use-reciprocal-square-root use-wzr-to-vec-move v8.1a v8.2a v8.3a v8.4a v8.5a v8.6a v8.7a
        v8.8a v8.9a v8a v8r v9.1a v9.2a v9.3a v9.4a v9.5a v9.6a v9.7a v9a vh wfxt xs zcm-fpr128
        zcm-fpr32 zcm-fpr64 zcm-gpr32 zcm-gpr64 zcz-fp-workaround zcz-fpr128 zcz-gpr32 zcz-gpr64
        """
    )
)
"""Features that a target may add or remove."""

AARCH64_IMPLIED = _rows(
    """
    aes: neon altnzcv: flagm amvs: am bf16: neon ccdp: ccpp complxnum: neon cortex-r82:
    use-postra-scheduler cortex-r82ae: use-postra-scheduler crypto: aes sha2 d128: lse128 dotprod:
    neon ete: trbe f16f32dot: fullfp16 neon f16f32mm: fullfp16 neon f16mm: fullfp16 f32mm: sve
    f64mm: sve f8f16mm: fp8 f8f32mm: fp8 faminmax: neon fp16fml: fullfp16 neon fp8: neon fp8dot2:
    fp8 fp8dot4: fp8 fp8fma: fp8 fprcvt: fp-armv8 fptoint: fp-armv8 fullfp16: fp-armv8 gcs: chk
    i8mm: neon ite: ete jsconv: fp-armv8 lse128: lse lsfe: fp-armv8 lut: neon mec: rme mops-go: mops
    mte mtetc: mte neon: fp-armv8 pan-rwv: pan rasv2: ras rcpc-immo: rcpc rcpc3: rcpc-immo rdm: neon
    sha2: neon sha3: sha2 sm4: neon sme: bf16 fullfp16 sme-b16b16: sme2 sve-b16b16 sme-f16f16: sme2
    sme-f64f64: sme sme-f8f16: fp8 sme2 sme-f8f32: fp8 sme2 sme-fa64: sme sve2 sme-i16i64: sme
    sme-lutv2: sme2 sme-mop4: sme2 sme-tmop: sme2 sme2: sme sme2p1: sme2 sme2p2: sme2p1 sme2p3:
    sme2p2 specres2: predres ssve-aes: sme2 sve-aes ssve-bitperm: sme2 sve-bitperm ssve-fexpa: sme2
    ssve-fp8dot2: fp8 sme2 ssve-fp8dot4: fp8 sme2 ssve-fp8fma: fp8 sme2 sve: fullfp16 sve-aes: aes
    sve-b16mm: sve sve-f16f32mm: sve sve-sha3: sha3 sve-sm4: sm4 sve2: sve sve2-aes: sve-aes sve2
    sve2-bitperm: sve-bitperm sve2 sve2-sha3: sve-sha3 sve2 sve2-sm4: sve-sm4 sve2 sve2p1: sve2
    sve2p2: sve2p1 sve2p3: sve2p2 vh: CONTEXTIDREL2
    """
)
"""Features, each with the features that it adds directly. Those may add others."""

RISCV64_FEATURES = frozenset(
    _names(
        """
        32bit 64bit a add-load-fusion addi-load-fusion andes45 auipc-addi-fusion auipc-load-fusion b
        bfext-fusion c conditional-cmv-fusion d disable-latency-sched-heuristic
        disable-misched-load-clustering disable-misched-store-clustering
        disable-postmisched-load-clustering disable-postmisched-store-clustering dlen-factor-2 e
        enable-vsetvli-sched-heuristic exact-asm experimental experimental-p experimental-rvm23u32
        experimental-smpmpmt experimental-svukte experimental-xrivosvisni experimental-xrivosvizip
        experimental-xsfmclic experimental-xsfsclic experimental-zibi experimental-zicfilp
        experimental-zicfiss experimental-zvbc32e experimental-zvfbfa experimental-zvfofp8min
        experimental-zvkgs experimental-zvqdotq f forced-atomics h i ld-add-fusion log-vrgather
        lui-addi-fusion lui-load-fusion m mips-p8700 no-default-unroll no-sink-splat-operands
        no-trailing-seq-cst-fence optimized-nf2-segment-load-store optimized-nf3-segment-load-store
        optimized-nf4-segment-load-store optimized-nf5-segment-load-store
        optimized-nf6-segment-load-store optimized-nf7-segment-load-store
        optimized-nf8-segment-load-store optimized-zero-stride-load permissive-zalrsc
        predictable-select-expensive prefer-vsetvli-over-read-vlenb prefer-w-inst q relax reserve-x1
        reserve-x10 reserve-x11 reserve-x12 reserve-x13 reserve-x14 reserve-x15 reserve-x16
        reserve-x17 reserve-x18 reserve-x19 reserve-x2 reserve-x20 reserve-x21 reserve-x22
        reserve-x23 reserve-x24 reserve-x25 reserve-x26 reserve-x27 reserve-x28 reserve-x29
        reserve-x3 reserve-x30 reserve-x31 reserve-x4 reserve-x5 reserve-x6 reserve-x7 reserve-x8
        reserve-x9 rva20s64 rva20u64 rva22s64 rva22u64 rva23s64 rva23u64 rvb23s64 rvb23u64 rvi20u32
        rvi20u64 save-restore sdext sdtrig sha shcounterenw shgatpa shifted-zextw-fusion
        shlcofideleg short-forward-branch-ialu short-forward-branch-iload
        short-forward-branch-iminmax short-forward-branch-imul shtvala shvsatpa shvstvala shvstvecd
        shxadd-load-fusion sifive7 single-element-vec-fp64 smaia smcdeleg smcntrpmf smcsrind smctr
        smdbltrp smepmp smmpm smnpm smrnmi smstateen ssaia ssccfg ssccptr sscofpmf sscounterenw
        sscsrind ssctr ssdbltrp ssnpm sspm ssqosid ssstateen ssstrict sstc sstvala sstvecd ssu64xl
        supm svade svadu svbare svinval svnapot svpbmt svvptc tagged-globals unaligned-scalar-mem
        unaligned-vector-mem use-postra-scheduler v ventana-veyron vl-dependent-latency
        vxrm-pipeline-flush xandesbfhcvt xandesperf xandesvbfhcvt xandesvdot xandesvpackfph
        xandesvsinth xandesvsintload xcvalu xcvbi xcvbitmanip xcvelw xcvmac xcvmem xcvsimd xmipscbop
        xmipscmov xmipsexectl xmipslsp xqccmp xqci xqcia xqciac xqcibi xqcibm xqcicli xqcicm xqcics
        xqcicsr xqciint xqciio xqcilb xqcili xqcilia xqcilo xqcilsm xqcisim xqcisls xqcisync
        xsfcease xsfmm128t xsfmm16t xsfmm32a16f xsfmm32a32f xsfmm32a8f xsfmm32a8i xsfmm32t
        xsfmm64a64f xsfmm64t xsfmmbase xsfvcp xsfvfbfexp16e xsfvfexp16e xsfvfexp32e xsfvfexpa
        xsfvfexpa64e xsfvfnrclipxfqf xsfvfwmaccqqq xsfvqmaccdod xsfvqmaccqoq xsifivecdiscarddlone
        xsifivecflushdlone xsmtvdot xtheadba xtheadbb xtheadbs xtheadcmo xtheadcondmov xtheadfmemidx
        xtheadmac xtheadmemidx xtheadmempair xtheadsync xtheadvdot xventanacondops xwchc za128rs
        za64rs zaamo zabha zacas zalasr zalrsc zama16b zawrs zba zbb zbc zbkb zbkc zbkx zbs zca zcb
        zcd zce zcf zclsd zcmop zcmp zcmt zdinx zexth-fusion zextw-fusion zfa zfbfmin zfh zfhmin
        zfinx zhinx zhinxmin zic64b zicbom zicbop zicboz ziccamoa ziccamoc ziccif zicclsm ziccrse
        zicntr zicond zicsr zifencei zihintntl zihintpause zihpm zilsd zilsd-4byte-align zimop zk
        zkn zknd zkne zknh zkr zks zksed zksh zkt zmmul ztso zvbb zvbc zve32f zve32x zve64d zve64f
        zve64x zvfbfmin zvfbfwma zvfh zvfhmin zvkb zvkg zvkn zvknc zvkned zvkng zvknha zvknhb zvks
        zvksc zvksed zvksg zvksh zvkt zvl1024b zvl128b zvl16384b zvl2048b zvl256b zvl32768b zvl32b
        zvl4096b zvl512b zvl64b zvl65536b zvl8192b
        """
    )
)
"""Features that a target may add or remove."""

RISCV64_IMPLIED = _rows(
    """
    a: zaamo zalrsc b: zba zbb zbs c: zca d: f experimental-rvm23u32: 32bit b i m zce zcmop zicbop
    zicond zihintntl zihintpause zimop experimental-zicfilp: zicsr experimental-zicfiss: zicsr zimop
    experimental-zvbc32e: zve32x experimental-zvfbfa: zfbfmin zve32f experimental-zvfofp8min: zve32f
    experimental-zvkgs: zvkg experimental-zvqdotq: zve32x f: zicsr m: zmmul q: d rva20s64: a c d i m
    ssccptr sstvala sstvecd svade svbare za128rs ziccamoa ziccif zicclsm ziccrse zicntr zifencei
    rva20u64: a c d i m za128rs ziccamoa ziccif zicclsm ziccrse zicntr rva22s64: a b c d i m ssccptr
    sscounterenw sstvala sstvecd svade svbare svinval svpbmt za64rs zfhmin zic64b zicbom zicbop
    zicboz ziccamoa ziccif zicclsm ziccrse zicntr zifencei zihintpause zihpm zkt rva22u64: a b c d i
    m za64rs zfhmin zic64b zicbom zicbop zicboz ziccamoa ziccif zicclsm ziccrse zicntr zihintpause
    zihpm zkt rva23s64: a b c i m sha ssccptr sscofpmf sscounterenw ssnpm sstc sstvala sstvecd
    ssu64xl supm svade svbare svinval svnapot svpbmt v za64rs zawrs zcb zcmop zfa zfhmin zic64b
    zicbom zicbop zicboz ziccamoa ziccif zicclsm ziccrse zicntr zicond zifencei zihintntl
    zihintpause zihpm zimop zkt zvbb zvfhmin zvkt rva23u64: a b c i m supm v za64rs zawrs zcb zcmop
    zfa zfhmin zic64b zicbom zicbop zicboz ziccamoa ziccif zicclsm ziccrse zicntr zicond zihintntl
    zihintpause zihpm zimop zkt zvbb zvfhmin zvkt rvb23s64: a b c d i m ssccptr sscofpmf
    sscounterenw sstc sstvala sstvecd ssu64xl svade svbare svinval svnapot svpbmt za64rs zawrs zcb
    zcmop zfa zic64b zicbom zicbop zicboz ziccamoa ziccif zicclsm ziccrse zicntr zicond zifencei
    zihintntl zihintpause zihpm zimop zkt rvb23u64: a b c d i m za64rs zawrs zcb zcmop zfa zic64b
    zicbom zicbop zicboz ziccamoa ziccif zicclsm ziccrse zicntr zicond zihintntl zihintpause zihpm
    zimop zkt rvi20u32: 32bit i rvi20u64: i sha: h shcounterenw shgatpa shtvala shvsatpa shvstvala
    shvstvecd ssstateen short-forward-branch-iload: short-forward-branch-ialu
    short-forward-branch-iminmax: short-forward-branch-ialu short-forward-branch-imul:
    short-forward-branch-ialu smctr: sscsrind smdbltrp: zicsr ssctr: sscsrind ssdbltrp: zicsr v:
    zve64d zvl128b xandesbfhcvt: f xandesvbfhcvt: zve32f xandesvdot: zve32x xandesvpackfph: f
    xandesvsinth: zve32x xandesvsintload: zve32x xqccmp: zca xqci: xqcia xqciac xqcibi xqcibm
    xqcicli xqcicm xqcics xqcicsr xqciint xqciio xqcilb xqcili xqcilia xqcilo xqcilsm xqcisim
    xqcisls xqcisync xqciac: zca xqcibi: zca xqcibm: zca xqcicm: zca xqciint: zca xqcilb: zca
    xqcili: zca xqcilia: zca xqcilo: zca xqcisim: zca xqcisync: zca xsfmm128t: xsfmmbase zvl512b
    xsfmm16t: xsfmmbase zvl64b xsfmm32a16f: xsfmmbase zve32f xsfmm32a32f: xsfmmbase zve32f
    xsfmm32a8f: xsfmmbase zve32f xsfmm32a8i: xsfmmbase xsfmm32t: xsfmmbase zvl128b xsfmm64a64f:
    xsfmmbase zve64d xsfmm64t: xsfmmbase zvl256b xsfmmbase: zve32x xsfvcp: zve32x xsfvfexp16e: zvfh
    xsfvfexp32e: zve32f xsfvfexpa: zve32f xsfvfexpa64e: xsfvfexpa zve64d xsfvfnrclipxfqf: zve32f
    xsfvfwmaccqqq: zvfbfmin zvl128b xsfvqmaccdod: zve32x zvl128b xsfvqmaccqoq: zve32x zvl256b
    xsmtvdot: zve32f xtheadvdot: v xwchc: zca zabha: zaamo zacas: zaamo zcb: zca zcd: d zca zce: zcb
    zcmp zcmt zcf: f zca zclsd: zca zilsd zcmop: zca zcmp: zca zcmt: zca zicsr zdinx: zfinx zfa: f
    zfbfmin: f zfh: zfhmin zfhmin: f zfinx: zicsr zhinx: zhinxmin zhinxmin: zfinx zicntr: zicsr
    zihpm: zicsr zk: zkn zkr zkt zkn: zbkb zbkc zbkx zknd zkne zknh zks: zbkb zbkc zbkx zksed zksh
    zvbb: zvkb zvbc: zve64x zve32f: f zve32x zve32x: zicsr zvl32b zve64d: d zve64f zve64f: zve32f
    zve64x zve64x: zve32x zvl64b zvfbfmin: zve32f zvfbfwma: zfbfmin zvfbfmin zvfh: zfhmin zvfhmin
    zvfhmin: zve32f zvkb: zve32x zvkg: zve32x zvkn: zvkb zvkned zvknhb zvkt zvknc: zvbc zvkn zvkned:
    zve32x zvkng: zvkg zvkn zvknha: zve32x zvknhb: zve64x zvks: zvkb zvksed zvksh zvkt zvksc: zvbc
    zvks zvksed: zve32x zvksg: zvkg zvks zvksh: zve32x zvl1024b: zvl512b zvl128b: zvl64b zvl16384b:
    zvl8192b zvl2048b: zvl1024b zvl256b: zvl128b zvl32768b: zvl16384b zvl4096b: zvl2048b zvl512b:
    zvl256b zvl64b: zvl32b zvl65536b: zvl32768b zvl8192b: zvl4096b
    """
)
"""Features, each with the features that it adds directly. Those may add others."""
