"""BibTeX of the papers, for model cards."""

CITATIONS = {
    "arccse": """
@inproceedings{zhang-etal-2022-contrastive,
    title = "A Contrastive Framework for Learning Sentence Representations from Pairwise and Triple-wise
             Perspective in Angular Space",
    author = "Zhang, Yuhao and Zhu, Hongji and Wang, Yongliang and Xu, Nan and Li, Xiaobo and Zhao, BinQiang",
    booktitle = "Proceedings of the 60th Annual Meeting of the Association for Computational Linguistics",
    year = "2022",
    url = "https://aclanthology.org/2022.acl-long.336",
}
""",
    "bag_of_words": """
@inproceedings{mikolov-etal-2013-distributed,
    title = "Distributed Representations of Words and Phrases and their Compositionality",
    author = "Mikolov, Tomas and Sutskever, Ilya and Chen, Kai and Corrado, Greg and Dean, Jeffrey",
    booktitle = "Advances in Neural Information Processing Systems",
    year = "2013",
    url = "https://arxiv.org/abs/1310.4546",
}
""",
    "consert": """
@inproceedings{yan-etal-2021-consert,
    title = "{C}on{SERT}: A Contrastive Framework for Self-Supervised Sentence Representation Transfer",
    author = "Yan, Yuanmeng and Li, Rumei and Wang, Sirui and Zhang, Fuzheng and Wu, Wei and Xu, Weiran",
    booktitle = "Proceedings of the 59th Annual Meeting of the Association for Computational Linguistics",
    year = "2021",
    url = "https://aclanthology.org/2021.acl-long.393",
}
""",
    "denosent": """
@inproceedings{wang-etal-2024-denosent,
    title = "{DenoSent}: A Denoising Objective for Self-Supervised Sentence Representation Learning",
    author = "Wang, Xinghao and He, Junliang and Wang, Pengyu and Zhou, Yunhua and Sun, Tianxiang and
              Qiu, Xipeng",
    booktitle = "Proceedings of the AAAI Conference on Artificial Intelligence",
    year = "2024",
    url = "https://arxiv.org/abs/2401.13621",
}
""",
    "paser": """
@inproceedings{wu-zhao-2022-sentence,
    title = "Sentence Representation Learning with Generative Objective rather than Contrastive Objective",
    author = "Wu, Bohong and Zhao, Hai",
    booktitle = "Proceedings of the 2022 Conference on Empirical Methods in Natural Language Processing",
    year = "2022",
    url = "https://aclanthology.org/2022.emnlp-main.221",
}
""",
    "pt_bert": """
@inproceedings{tan-etal-2022-sentence,
    title = "A Sentence is Worth 128 Pseudo Tokens: A Semantic-Aware Contrastive Learning Framework for
             Sentence Embeddings",
    author = "Tan, Haochen and Shao, Wei and Wu, Han and Yang, Ke and Song, Linqi",
    booktitle = "Findings of the Association for Computational Linguistics: ACL 2022",
    year = "2022",
    url = "https://aclanthology.org/2022.findings-acl.22",
}
""",
    "self_distillation": """
@inproceedings{liu-etal-2023-rankcse,
    title = "{R}ank{CSE}: Unsupervised Sentence Representations Learning via Learning to Rank",
    author = "Liu, Jiduan and Liu, Jiahao and Wang, Qifan and Wang, Jingang and Wu, Wei and Xian, Yunsen and
              Zhao, Dongyan and Chen, Kai and Yan, Rui",
    booktitle = "Proceedings of the 61st Annual Meeting of the Association for Computational Linguistics",
    year = "2023",
    url = "https://arxiv.org/abs/2305.16726",
}
""",
    "simcse": """
@inproceedings{gao-etal-2021-simcse,
    title = "{S}im{CSE}: Simple Contrastive Learning of Sentence Embeddings",
    author = "Gao, Tianyu and Yao, Xingcheng and Chen, Danqi",
    booktitle = "Proceedings of the 2021 Conference on Empirical Methods in Natural Language Processing",
    year = "2021",
    url = "https://aclanthology.org/2021.emnlp-main.552",
}
""",
    "slt_fai": """
@article{wang-etal-2023-unsupervised,
    title = "Unsupervised Sentence Representation Learning with Frequency-induced Adversarial Tuning
             and Incomplete Sentence Filtering",
    author = "Wang, Bing and Li, Ximing and Yang, Zhiyao and Guan, Yuanyuan and Li, Jiayin and
              Wang, Shengsheng",
    journal = "arXiv preprint arXiv:2305.08655",
    year = "2023",
    url = "https://arxiv.org/abs/2305.08655",
}
""",
}
